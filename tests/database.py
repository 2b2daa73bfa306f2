"""A pytest plugin that starts PostgreSQL when DATABASE_URL is not set.

It is loaded with ``-p`` (see addopts in pyproject.toml) and not from conftest.py, because pytest-django reads
the settings, and the address in them, before it comes to any conftest.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from djqueue.contrib import embedded

_server: embedded.PostgresServer | None = None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests() -> Generator[None, object, object]:
    global _server
    if not os.environ.get("DATABASE_URL"):
        # Nothing here outlives the run, so nothing has to reach the disk.
        settings = {"fsync": False, "full_page_writes": False, "max_connections": 200}
        _server = embedded.PostgresServer(settings=settings)
        _server.start()
        os.environ["DATABASE_URL"] = _server.url
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    global _server
    if _server is not None:
        _server.close()
        _server = None
        del os.environ["DATABASE_URL"]


def pytest_report_header() -> str:
    if _server is None:
        return "postgresql: as in DATABASE_URL"
    return f"postgresql: embedded {_server.major}, port {_server.port}, log in {_server.log}"
