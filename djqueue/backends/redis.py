"""Jobs in Redis or Valkey: an insert follows the caller's transaction."""

from djqueue.backends.base import QueueBackend
from djqueue.stores import RedisStore


class RedisBackend(QueueBackend):
    store_class = RedisStore
