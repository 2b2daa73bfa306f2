"""The PostgreSQL engine.

The verbs have one file in ``sql/`` each. ``engine.py`` holds those of the application, in the caller's transaction:
``single.py`` stores one job, ``bulk.py`` many, ``unique.py`` those with keys; ``direct.py`` is the short way past Django's
cursors; ``control.py`` cancels, retries and pauses, ``health.py`` looks. ``worker.py`` holds those of workers and
maintenance, on a ``session.py`` of their own; ``fetch_cursor.py`` is where a fetch goes on, ``at_most_once.py`` what runs at most once.
``cron.py`` is the crontab. ``listener.py`` waits for wake-ups, ``wakes.py`` sends them after the caller's commit.
"""

from djqueue.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
