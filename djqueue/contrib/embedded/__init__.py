"""Servers that live inside a ``with`` block: PostgreSQL and Valkey from wheels, without root, apt or containers.

    from djqueue.contrib import embedded

    with embedded.postgres() as database, embedded.valkey() as store:
        print(database.url, store.url)

For trying djqueue out and for test suites on machines without a database server; not for production. Needs
the extra ``embedded`` (or installed servers, which are found too: PostgreSQL, Valkey, Redis). What each part does:

- ``process.py`` knows about processes, users, private directories and locks, and nothing about servers.
- ``programs.py`` sees to it that a server's user can run its program.
- ``server.py`` is what servers of every kind have in common: one owner for each directory, start and stop.
- ``postgres_server.py`` knows how PostgreSQL is made, called and recognised, ``valkey_server.py`` the same of Valkey and Redis.

Promises, each with a test: the server ends with the process that started it, also after ``kill -9``; a
directory left behind by a killed run starts again; any number of servers run side by side; a directory whose
server is running already is joined, not damaged.

Weak spots: outside Linux nothing ends the server when its owner is killed with SIGKILL (the next start ends
it). A server that is joined goes away with its owner. There is no Windows support.
"""

from __future__ import annotations

from djqueue.contrib.embedded.postgres_server import PostgresServer, postgres
from djqueue.contrib.embedded.process import EmbeddedError
from djqueue.contrib.embedded.valkey_server import ValkeyServer, valkey

__all__ = ["EmbeddedError", "PostgresServer", "ValkeyServer", "postgres", "valkey"]
