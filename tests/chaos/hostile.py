"""Tasks that attack the process that runs them. Most do so at their first attempt only, so that they can complete."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from typing import Any

from django.db import DatabaseError, InterfaceError, connection

from djqueue import compat, task
from tests.chaos.noting import ledger, noted

# A store outside of the database refuses the tasks that ask for it, where they are written.
CAN_COMMIT_TOGETHER: bool = getattr(compat.task_backends["default"], "supports_transactional", False)

NOISE = "\x7f"
"""What ``shout`` prints: a character of no other line, so that readers of the log can remove it."""

warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)


def problem(text: str) -> None:
    ledger().note("problem", text=f"Process {os.getpid()}: {text}")


# Ends


@task(takes_context=True, backoff=0.2)
def leave(context: Any, code: int) -> None:
    """End the process as if its work were done (0) or with an error."""
    with noted(context):
        if context.attempt == 1:
            ledger().note("kill", pids=[os.getpid()], by="os._exit")
            os._exit(code)


@task(takes_context=True, backoff=0.2)
def sys_exit(context: Any) -> None:
    with noted(context):
        if context.attempt == 1:
            sys.exit(3)


@task(takes_context=True, backoff=0.2)
async def asys_exit(context: Any) -> None:
    with noted(context):
        if context.attempt == 1:
            sys.exit(3)


# The event loop

LOOP_ENDS = ("gather", "group", "interrupt", "leftover", "callback", "stop")


async def _exit_soon(error: BaseException, seconds: float = 0) -> None:
    await asyncio.sleep(seconds)
    ledger().note("loop", pid=os.getpid())
    raise error


def _raise(error: BaseException) -> None:
    raise error


_leftovers: set[asyncio.Task[None]] = set()


@task(takes_context=True, backoff=0.2)
async def end_loop(context: Any, how: str) -> None:
    """End the event loop that this and other jobs run on."""
    with noted(context):
        if context.attempt > 1:
            return
        loop = asyncio.get_running_loop()
        if how == "gather":
            await asyncio.gather(_exit_soon(SystemExit(3)))
        elif how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(_exit_soon(SystemExit(3)))
        elif how == "interrupt":
            await asyncio.create_task(_exit_soon(KeyboardInterrupt()))
        elif how == "leftover":
            leftover = asyncio.create_task(_exit_soon(SystemExit(3), 0.05))
            _leftovers.add(leftover)
        else:
            ledger().note("loop", pid=os.getpid())
            if how == "callback":
                loop.call_soon(_raise, SystemExit(3))
            else:
                loop.stop()
            await asyncio.sleep(0.01)


# Copies and processes

FORKS = ("return", "raise", "exit")
COPY_SECONDS = 20.0
"""For so long the copy that a fork made may live after it left the task."""


def _copy(how: str) -> None:
    """Leave the task in the copy."""
    if how == "raise":
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it prints its traceback, which is no problem in the log
        raise ValueError("in the copy")
    if how == "exit":
        sys.exit(0)


def _fork() -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ledger().note("copy", pid=os.getpid(), parent=parent)
    return pid


def _watch_copy(pid: int) -> None:
    deadline = time.monotonic() + COPY_SECONDS
    with suppress(ChildProcessError):  # reaped by another
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                problem("the copy that a fork made of it goes on outside of the task.")
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.05)


@task(takes_context=True, backoff=0.2)
def fork(context: Any, how: str) -> None:
    with noted(context):
        pid = _fork()
        if pid == 0:
            return _copy(how)
        _watch_copy(pid)


@task(takes_context=True, backoff=0.2)
async def afork(context: Any, how: str) -> None:
    with noted(context):
        pid = _fork()
        if pid == 0:
            return _copy(how)
        await asyncio.to_thread(_watch_copy, pid)


@task(takes_context=True, transactional=CAN_COMMIT_TOGETHER, backoff=0)
def fork_and_write(context: Any, how: str) -> None:
    """Fork in the middle of a transaction, whose connection the copy shares."""
    with noted(context):
        _write(context.job.id)
        pid = _fork()
        if pid == 0:
            return _copy(how)
        _watch_copy(pid)
        _write(context.job.id)


@task(takes_context=True, backoff=0.2)
def terminate(context: Any) -> None:
    """End a process of multiprocessing in the documented way."""
    with noted(context):
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(20,))
        process.start()
        process.terminate()
        process.join(COPY_SECONDS / 2)
        if process.exitcode is None:
            problem("Process.terminate() did not end a process that it started.")
            process.kill()
            process.join()


# Connections

SESSIONS = (
    "SET search_path = pg_catalog",
    "SET ROLE pg_monitor",
    "SET statement_timeout = '1ms'",
    "SELECT pg_advisory_lock(%s)",
)


def _write(job: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO chaos_effect (job) VALUES (%s)", [job])


@task(takes_context=True, backoff=0)
def write_alone(context: Any) -> None:
    """Write a row in autocommit, on a connection that nobody prepared otherwise."""
    with noted(context):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT name || '=' || setting FROM pg_settings"
                " WHERE source = 'session' AND name IN ('search_path', 'statement_timeout')"
                " UNION ALL SELECT 'role=' || current_user WHERE current_user <> session_user"
                " UNION ALL SELECT 'advisory lock' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            )
            if found := [state for (state,) in cursor.fetchall()]:
                problem(f"job {context.job.id} found what another left on its connection: {', '.join(found)}.")
        _write(context.job.id)


@task(takes_context=True, backoff=0)
def change_session(context: Any, statement: str) -> None:
    with noted(context), connection.cursor() as cursor:
        cursor.execute(statement, [context.job.id] if "%s" in statement else None)


@task(takes_context=True, backoff=0)
def open_transaction(context: Any) -> None:
    """Leave a transaction open that Django does not know of."""
    with noted(context, returned="unclear" if context.attempt == 1 else "returned"):
        if context.attempt == 1:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")


@task(takes_context=True, transactional=CAN_COMMIT_TOGETHER, backoff=0)
def end_transaction(context: Any, statement: str) -> None:
    """End the transaction in which the job completes, behind Django's back."""
    with noted(context, returned="unclear" if context.attempt == 1 else "returned"):
        _write(context.job.id)
        if context.attempt == 1:
            with connection.cursor() as cursor:
                cursor.execute(statement)


# What outlives its job, and what floods


def _linger(seconds: float) -> None:
    with suppress(DatabaseError, InterfaceError):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        time.sleep(seconds)
    with suppress(DatabaseError, InterfaceError):
        connection.close()


@task(takes_context=True, backoff=0.2)
def start_threads(context: Any, seconds: float, daemon: bool) -> None:
    with noted(context):
        for _ in range(3):
            threading.Thread(target=_linger, args=(seconds,), daemon=daemon).start()


@task(takes_context=True, backoff=0.2)
def shout(context: Any, mebibytes: int) -> None:
    with noted(context):
        print(NOISE * (mebibytes * 2**20))
        print(NOISE * 2**19, file=sys.stderr)
