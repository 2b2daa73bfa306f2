"""The PostgreSQL engine.

``PostgresEngine`` (``engine.py``) inserts jobs, controls them (``PostgresController``) and inspects them
(``PostgresInspector``). These verbs run on the application's connection, in the caller's transaction if there is one
(``application.py``). ``PostgresFetcher``, ``PostgresRegistrar`` and ``PostgresMaintainer`` each use a connection of their
own (``session.py``), as ``PostgresListener`` does; ``PostgresCron`` runs on either. Each role of ``engines/protocol`` has
the module of its name, except the inserter, which is the engine itself. ``sql/`` has the statements, ``statements.py`` reads
them, ``execution.py`` runs them and ``show.py`` prints one for psql. ``listing.py`` is the part of the inspector for lists of jobs.

Inserting: ``single.py`` stores one job, ``bulk.py`` many of one kind, ``unique.py`` those with unique keys; ``direct.py``
sends statements on Django's connection without Django's cursors; ``wakes.py`` wakes workers after the caller's commit.
Fetching: ``fetch_cursor.py`` remembers where a fetch continues, ``at_most_once.py`` stores the outcomes of jobs that run at
most once, ``follow_ups.py`` releases the follow-ups of finished jobs.
A verb wakes workers itself, and there is no dispatcher around the verbs that does: a single insert, a fetch and an ack decide in
the statement or right after it whether to wake, so a dispatcher would only forward them. The outbox uses the same position
of a hook (``adapters/django.py``) but another lifetime: one hook per savepoint, because its jobs must not survive a rollback.
Connections: ``connection.py`` opens them, ``denials.py`` reports refused access.
"""

from djqueue.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
