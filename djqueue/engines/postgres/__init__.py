"""The PostgreSQL engine.

``engine.py`` holds the verbs, one file in ``sql/`` each. ``connection.py`` is the connection of a worker's thread,
``listener.py`` waits for wake-ups, ``wakes.py`` sends them after the caller's commit.
"""

from djqueue.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
