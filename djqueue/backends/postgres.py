"""Jobs in PostgreSQL: an insert joins the caller's transaction by itself."""

from djqueue.backends.base import QueueBackend
from djqueue.stores import PostgresStore


class PostgresBackend(QueueBackend):
    store_class = PostgresStore
    supports_transactional = True
