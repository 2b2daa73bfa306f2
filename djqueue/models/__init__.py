"""The tables.

``Job`` holds live jobs only; the ack that finishes a job moves its row to ``FinishedJob`` in the same statement. The
live table stays small, cached and quick to vacuum, whatever the size of the history. Both have the same columns.

A claim must be a HOT update: the columns it writes (state, attempt, claim, attempted_by, attempted_at) are in no index and
in no index predicate, are never null, and have the same width from the start. The page keeps half of its space free
for the new row version (fillfactor, in the migration).

A null costs no space: the header of a row has room for the null bits of 72 columns (``pg_column_size`` of a plain job did not
grow with the columns that only some jobs use). The columns that fetch and ack read come before the JSON columns, because
PostgreSQL reads a row from its start to the column that it needs.

Do not point foreign keys at jobs: store ``result.id`` instead. The engine's SQL writes the rows; the models are for reading.

These tables exist on PostgreSQL only. On a database of another vendor, in a project whose jobs live in Redis, ``migrate``
creates ``OutboxRow`` and no other table (``required_db_vendor``; the migration says the same). The permissions exist everywhere,
because the admin shows jobs in Redis too.
"""

from djqueue.models.crontab import CronEntry, CronTick, Scheduler
from djqueue.models.fleet import Leader, Queue, Worker
from djqueue.models.jobs import AbstractJob, FinishedJob, Job, OutboxRow, UniqueKey

__all__ = [
    "AbstractJob",
    "CronEntry",
    "CronTick",
    "FinishedJob",
    "Job",
    "Leader",
    "OutboxRow",
    "Queue",
    "Scheduler",
    "UniqueKey",
    "Worker",
]
