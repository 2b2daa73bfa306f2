"""The backends for TASKS: they adapt the interface of django.tasks to a store.

The framework makes a backend object per thread and asyncio task. They share a ``Store`` (``djqueue.stores``) with the
settings, the engine, the outbox and the queues.

Decisions beyond the contract of django.tasks:

- A receiver of ``task_enqueued`` that raises is logged, and the job stays enqueued. An error would make the caller
  enqueue it a second time.
- Any id that cannot be a job's id raises ``TaskResultDoesNotExist``. A job whose task is not known in this
  process raises ``UnknownTaskResult``, which is a ``TaskResultDoesNotExist`` too; ``Task.get_result`` raises
  ``TaskResultMismatch`` for it.
- A project's modules can be imported despite invalid OPTIONS: ``manage.py check`` and the first use report them.
"""

from djqueue.backends.base import QueueBackend
from djqueue.backends.postgres import PostgresBackend
from djqueue.backends.redis import RedisBackend

__all__ = ["PostgresBackend", "QueueBackend", "RedisBackend"]
