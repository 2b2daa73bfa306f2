"""The backends for TASKS: the words of django.tasks translated into those of a store, and nothing more.

The framework makes a backend object per thread and asyncio task. What they share is in their ``Store`` (``djqueue.stores``):
settings, engine, outbox and queues.

Decisions beyond the contract of django.tasks:

- A receiver of ``task_enqueued`` that raises is logged, and the job stays enqueued. An error would make the caller
  enqueue it a second time.
- An id that cannot be a job's, however odd, raises ``TaskResultDoesNotExist``. A job whose task is not known in this
  process raises ``UnknownTaskResult``, which is a ``TaskResultDoesNotExist`` too; ``Task.get_result`` raises
  ``TaskResultMismatch`` for it.
- Wrong OPTIONS do not keep a project's modules from being imported: they are errors of ``manage.py check``, and of the
  first use.
"""

from djqueue.backends.base import QueueBackend
from djqueue.backends.postgres import PostgresBackend
from djqueue.backends.redis import RedisBackend

__all__ = ["PostgresBackend", "QueueBackend", "RedisBackend"]
