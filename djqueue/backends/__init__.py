"""The backends for TASKS: the words of django.tasks translated into those of an engine, and nothing more.

The framework makes a backend object per thread and asyncio task, so it must be cheap: the options are
parsed and the engine is made when first asked for, and no backend holds a connection. What only one engine needs
(psycopg and libpq, redis-py) is imported with that engine: a project on SQLite with its jobs in Redis needs no libpq.

::

    base.py         what all backends do alike
    items.py        the items and the ids of ``enqueue_many``
    postgres.py     ``PostgresBackend``: an insert joins the caller's transaction by itself
    redis.py        ``RedisBackend``: an insert follows the transaction
    deferred.py     what a transaction enqueued, until it commits

Decisions beyond the contract:

- A receiver of ``task_enqueued`` that raises is logged, and the job stays enqueued. An error would make the
  caller enqueue it a second time.
- An id that is no number of a job, however odd, raises ``TaskResultDoesNotExist``. A job whose task is not
  known in this process raises ``UnknownTaskResult``, which is one too; ``Task.get_result`` raises
  ``TaskResultMismatch`` for it.
- Wrong OPTIONS do not keep a project's modules from being imported: they are errors of ``manage.py check``,
  and of the first use.
"""

from djqueue.backends.base import QueueBackend
from djqueue.backends.postgres import PostgresBackend
from djqueue.backends.redis import RedisBackend

__all__ = ["PostgresBackend", "QueueBackend", "RedisBackend"]
