"""The PostgreSQL engine.

Each verb has a file in ``sql/``, and each role of ``engines/protocol`` a module of its name. The verbs of the application run
in the caller's transaction (``application.py``), the others on a connection of their own (``session.py``). ``single.py``
stores one job, ``bulk.py`` many, ``unique.py`` those with unique keys; ``direct.py`` is the short way past Django's cursors.
``fetch_cursor.py`` is where a fetch continues, ``at_most_once.py`` what runs at most once, ``wakes.py`` wakes workers after
the caller's commit.
"""

from djqueue.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
