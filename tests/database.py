"""A pytest plugin that starts PostgreSQL when DATABASE_URL is not set.

It is loaded with ``-p`` (see addopts in pyproject.toml) and not from conftest.py, because pytest-django reads
the settings, and the address in them, before it comes to any conftest.

With ``pytest -n 3`` each of the three processes starts servers of its own, so that tests in one of them may empty, fill or
stop a server without the others noticing. The process that hands out the tests starts none.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest

from djqueue.contrib import embedded

_server: embedded.PostgresServer | None = None


def hands_out(config: pytest.Config) -> bool:
    """Whether this process runs no tests but hands them out to others (pytest-xdist)."""
    return bool(getattr(config.known_args_namespace, "numprocesses", 0)) and "PYTEST_XDIST_WORKER" not in os.environ


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    global _server
    _heed_signals()
    if hands_out(early_config):
        # The processes that run the tests do not read addopts before they load the settings.
        os.environ["PYTEST_PLUGINS"] = "tests.database,tests.stores"
    elif not os.environ.get("DATABASE_URL"):
        # Nothing here outlives the run, so nothing has to reach the disk.
        settings = {"fsync": False, "full_page_writes": False, "max_connections": 200}
        _server = embedded.PostgresServer(settings=settings)
        _server.start()
        os.environ["DATABASE_URL"] = _server.url
    return (yield)


def _heed_signals() -> None:
    """Undo what a run in the background (nohup, some CI runners) ignores: the processes that tests start would ignore it too."""
    for number, plain in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, plain)


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
