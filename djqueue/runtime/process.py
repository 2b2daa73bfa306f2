"""Signals of a worker process, what its forks inherit, and its end.

**Forks.** A task may fork: ``os.fork()``, or ``multiprocessing`` on Linux. The fork is a copy of the worker with one
thread, so three things must not be copied. Its signal handlers are those of a plain Python process again, or
``Process.terminate()`` and ``Pool`` would do nothing. The database connections of its thread are dropped without a
message to the server, because the worker still uses them. And a copy that returns from the task must not continue as a
worker: it ends there, as a script ends, and neither stores an outcome nor fetches a job.

**The end.** A worker ends as any Python process does, with its non-daemon threads, ``atexit`` hooks and
``logging.shutdown()``, but within a few seconds: a thread of a task that never returns must not delay it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from django.db import connections

from djqueue.adapters.django import take_connection_pools
from djqueue.adapters.python import drop_callbacks, leave_thread_pool, run_exit_hooks
from djqueue.runtime import django_connections
from djqueue.runtime.event_loop import EventLoop
from djqueue.runtime.signals import STOP_SIGNALS

EXIT_HOOKS_SECONDS = 5.0
"""How long ``atexit`` hooks and non-daemon threads may take at the end of a worker."""
_ABORTED_SECONDS = 1.0
_FLUSH_SECONDS = 5

is_copy = False
"""Whether this process is a fork of a worker. Read after every task."""

_plain: dict[int, Any] = {}
"""What is done at these signals in a plain process, by number."""
_handler: Callable[[int, object], None] | None = None
_forking = threading.local()
_inherited: list[object] = []
"""Connections of the worker, kept in its copies: to garbage-collect one would end the worker's session."""


def hear(on_terminate: Callable[[], None]) -> None:
    """Call ``on_terminate``, in the main thread, at SIGTERM; do nothing at SIGINT and SIGHUP.

    Ctrl-C and the end of a terminal reach the whole process group, and the supervisor tells its workers what to do.
    They get a handler rather than SIG_IGN, which programs that a task starts would inherit.
    """
    global _handler

    def handle(number: int, frame: object) -> None:
        if number == signal.SIGTERM:
            on_terminate()

    for number in STOP_SIGNALS:
        before = signal.signal(number, handle)
        if number not in _plain:
            _plain[number] = before
    if _handler is None:
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_become_copy)
    _handler = handle


def end_copy(error: BaseException | None) -> None:
    """End this process if it is a fork of a worker; ``error`` is what the task raised in it."""
    if is_copy:
        _end_as_script(error)


def end(code: int, *, is_aborted: bool = False) -> NoReturn:
    """End this process with its exit hooks, or without those that take too long."""
    limit = threading.Timer(_ABORTED_SECONDS if is_aborted else EXIT_HOOKS_SECONDS, os._exit, (code,))
    limit.daemon = True
    limit.start()
    try:
        run_exit_hooks()
        _flush()
    finally:
        os._exit(code)


def _before_fork() -> None:
    # Until the copy has its own handlers: the worker's handlers would swallow a signal that is meant for the copy.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    _forking.loop = _loop_of_jobs()
    _flush()  # or the copy writes once more what the worker has not written yet


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _become_copy() -> None:
    global is_copy
    is_copy = True
    for number, plain in _plain.items():
        if signal.getsignal(number) is _handler:
            signal.signal(number, plain)
    _after_fork()
    _let_go_of_connections()
    leave_thread_pool()  # otherwise a task that waits for its copy would wait forever
    if (loop := _forking.loop) is not None:
        drop_callbacks(loop)  # they belong to the worker
        loop.call_soon(_end_as_script, None)


def _loop_of_jobs() -> Any:
    if threading.current_thread().name != f"djqueue-{EventLoop.name}":
        return None
    with suppress(RuntimeError):
        return asyncio.get_running_loop()


def _let_go_of_connections() -> None:
    """Forget the connections of this thread: the next query opens a new one, or is refused inside a transaction."""
    for connection in connections.all(initialized_only=True):
        _inherited.append(connection.connection)
        connection.connection = None
        connection.closed_in_transaction = connection.in_atomic_block
    django_connections.forget_helper()
    _inherited.append(take_connection_pools())


def _end_as_script(error: BaseException | None) -> NoReturn:
    code = 0
    try:
        # A thread that does not exist in the copy may have held the lock of a stream.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_FLUSH_SECONDS)
        if isinstance(error, SystemExit):
            code = _exit_code(error.code)
        elif error is not None:
            code = 1
            traceback.print_exception(error)
        _flush()
    finally:
        os._exit(code)


def _exit_code(code: object) -> int:
    """Return the exit code of ``sys.exit(code)``."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or its reader is gone
            stream.flush()
