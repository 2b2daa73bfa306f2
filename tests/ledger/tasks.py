from __future__ import annotations

import asyncio
import atexit
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextvars import ContextVar
from logging.handlers import MemoryHandler
from typing import Any

from asgiref.sync import sync_to_async

from djqueue import Cancel, Discard, Retry, Snooze, UnreadableJob, compat, task
from tests.ledger import sessions  # noqa: F401  tasks that autodiscovery finds through this module
from tests.ledger.models import Entry
from tests.workflows import tasks as workflows  # noqa: F401  see sessions

# A store outside of the database refuses the tasks that ask for it, where they are written.
CAN_COMMIT_TOGETHER: bool = getattr(compat.task_backends["default"], "supports_transactional", False)


def write(label: str) -> None:
    Entry.objects.create(label=label, pid=os.getpid())


@task
def noop() -> None:
    pass


@task
def record(label: str) -> str:
    write(label)
    return label


@task
async def arecord(label: str) -> str:
    await sync_to_async(write)(label)
    return label


@task
def nap(label: str, seconds: float) -> str:
    write(label)
    time.sleep(seconds)
    return label


@task(takes_context=True)
def end_after(context: Any, seconds: float) -> None:
    time.sleep(seconds)
    write(f"ended {context.job.id}")


@task
async def anap(label: str, seconds: float) -> str:
    await sync_to_async(write)(label)
    await asyncio.sleep(seconds)
    return label


@task(takes_context=True, backoff=0)
def fail_until(context: Any, attempt: int) -> int:
    if context.attempt < attempt:
        raise ValueError(f"attempt {context.attempt} fails")
    return int(context.attempt)


@task(max_attempts=2, backoff=0)
def fail(message: str = "always") -> None:
    raise RuntimeError(message)


@task(max_attempts=2, backoff=0)
def fail_in_unicode(characters: int) -> None:
    raise RuntimeError("\N{EURO SIGN}" * characters * 20 if characters > 3 else "\N{EURO SIGN}" * characters + " \xe9")


@task
def return_euro() -> str:
    return "\N{EURO SIGN}"


@task(max_attempts=3)
def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task(max_attempts=1)
def kill_group() -> None:
    """As the end of a container: supervisor and worker die together."""
    os.killpg(0, signal.SIGKILL)


@task(max_attempts=2, backoff=0)
def end_process(code: int) -> None:
    os._exit(code)


@task(max_attempts=1)
def fork(way: str) -> int:
    """Fork; return the exit code of the copy, which comes back from here or raises."""
    if (pid := os.fork()) == 0:
        _leave_copy(way)
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@task(max_attempts=1)
async def afork(way: str) -> int:
    if (pid := os.fork()) == 0:
        await asyncio.sleep(0)
        _leave_copy(way)
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@task(transactional=CAN_COMMIT_TOGETHER, max_attempts=1)
def fork_in_transaction(way: str) -> int:
    write("before the fork")
    code = fork.func(way)
    write("after the fork")
    return int(code)


@task(max_attempts=1)
async def fork_in_pools(way: str) -> list[int]:
    return [
        await sync_to_async(fork.func)(way),
        await sync_to_async(fork.func, thread_sensitive=False)(way),
        await asyncio.to_thread(fork.func, way),
    ]


def _leave_copy(way: str) -> None:
    if way == "raise":
        raise ValueError("in the copy")
    if way == "exit":
        sys.exit(7)
    if way == "query":
        write("in the copy")


@task(max_attempts=1)
def start_and_terminate() -> list[int]:
    """As in plain Python: a terminated process ends, and so does a pool whose block ends early."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=time.sleep, args=(600,))
    process.start()
    process.terminate()
    process.join(20)
    with context.Pool(2) as pool:
        pool.apply_async(time.sleep, (600,))
        pids = [process.pid for process in pool._pool]  # type: ignore[attr-defined]
    return [process.exitcode, *(os.path.exists(f"/proc/{pid}") for pid in pids)]


@task(max_attempts=1)
def leave_processes() -> list[int]:
    """Start processes of several kinds, and do not wait for them."""
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=False)
    forked.start()
    LEFT.append(forked)
    sleeping = subprocess.Popen(["sleep", "600"])
    orphan = int(subprocess.check_output(["sh", "-c", "sleep 600 >/dev/null & echo $!"]))
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return [forked.pid or 0, sleeping.pid, orphan, daemon.pid]


LEFT: list[Any] = []


@task(max_attempts=1)
def leave_orphans(count: int) -> list[int]:
    """Start processes whose parent ends before they do."""
    return [int(subprocess.check_output(["sh", "-c", "sleep 1 >/dev/null & echo $!"])) for _ in range(count)]


@task(max_attempts=1)
def cache_location() -> str:
    from django.conf import settings

    return str(settings.CACHES["default"]["LOCATION"])


@task(max_attempts=1)
def say(text: str) -> str:
    print(text, flush=True)
    print(text, file=sys.stderr, flush=True)
    return text


@task(max_attempts=1)
def remember_for_the_end(path: str) -> None:
    """Log into a buffer and register an exit hook; both reach the disk at the end of the process."""
    logger = logging.getLogger("tests.ledger.buffered")
    if not logger.handlers:
        logger.addHandler(MemoryHandler(1000, flushLevel=logging.CRITICAL, target=logging.FileHandler(f"{path}.log")))
        atexit.register(_append, f"{path}.exit")
    logger.warning("one record")


def _append(path: str) -> None:
    with open(path, "a") as file:
        file.write("ended\n")


@task(max_attempts=1)
def hang_at_the_end(kind: str) -> None:
    if kind == "hook":
        atexit.register(time.sleep, 600)
    else:
        threading.Thread(target=time.sleep, args=(600,)).start()


@task(takes_context=True)
def snooze_once(context: Any) -> int:
    if not context.job.meta.get("snoozed"):
        raise Snooze(0.1)
    return int(context.attempt)


@task
def cancel_itself() -> None:
    raise Cancel("not needed any more")


@task
def discard_itself() -> None:
    raise Discard("hopeless")


@task(takes_context=True)
def retry_once(context: Any) -> int:
    if context.attempt == 1:
        raise Retry(delay=0.1)
    return int(context.attempt)


class Unprintable(Exception):
    def __init__(self, one: int, two: int) -> None:
        self.one = one
        self.two = two

    def __str__(self) -> str:
        raise RuntimeError("cannot be printed")


@task(max_attempts=1)
def raise_odd(kind: str) -> None:
    raise _odd(kind)


@task(max_attempts=1)
async def araise_odd(kind: str) -> None:
    raise _odd(kind)


def _odd(kind: str) -> BaseException:
    return {
        "SystemExit": SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "GeneratorExit": GeneratorExit(),
        "CancelledError": asyncio.CancelledError(),
        "Unprintable": Unprintable(1, 2),
        "BaseException": BaseException("bare"),
        "Surrogate": ValueError("\ud800 and \x00"),
    }[kind]


@task(max_attempts=1)
def return_odd(kind: str) -> Any:
    return {"object": object(), "nan": float("nan"), "nul": "\x00", "large": "x" * 300_000, "set": {1}}[kind]


variable: ContextVar[str] = ContextVar("variable", default="untouched")


@task
async def leave_behind(turns: int) -> None:
    variable.set("left behind")
    await take_turns.func(turns)


@task
async def find() -> str:
    return variable.get()


@task
async def take_turns(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@task
def thread_name() -> str:
    return threading.current_thread().name


@task(takes_context=True)
def describe(context: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    result = context.task_result
    return {
        "attempt": context.attempt,
        "id": result.id,
        "status": str(result.status),
        "args": args,
        "kwargs": kwargs,
        "workers": len(result.worker_ids),
    }


@task
def enqueue_another(more: int) -> None:
    if more:
        enqueue_another.enqueue(more - 1)


@task
def count(number: int) -> int:
    return number


@task
def group_exists(pk: int) -> bool:
    from django.contrib.auth.models import Group

    return Group.objects.filter(pk=pk).exists()


@task(timeout=1, max_attempts=1)
def overstay(label: str, seconds: float) -> None:
    """Sleep in small steps, in a way that nothing can interrupt."""
    write(label)
    time.sleep(seconds)


@task(timeout=1, max_attempts=1)
async def overstay_async(label: str, seconds: float) -> None:
    await sync_to_async(write)(label)
    await asyncio.sleep(seconds)


@task(timeout=1, max_attempts=1)
def fail_late() -> None:
    time.sleep(1.5)
    raise KeyError("late")


@task(timeout=1, max_attempts=1, takes_context=True)
def obey(context: Any, label: str) -> str:
    write(label)
    context.cancelled.wait(30)
    return str(context.cancelled.reason)


@task(timeout=1, max_attempts=1)
def query_slowly() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(30)")


@task(timeout=30, takes_context=True)
def tell_deadline(context: Any) -> float:
    return float((context.deadline - context.task_result.last_attempted_at).total_seconds())


@task
def statement_timeout() -> str:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


@task(retry_on=[ValueError], max_attempts=3, backoff=0)
def fail_with(kind: str) -> None:
    raise {"ValueError": ValueError, "KeyError": KeyError}[kind]("told to")


@task(max_attempts=2, backoff=0)
def fail_as_unreadable() -> None:
    raise UnreadableJob("of another job")


@task(max_attempts=2, backoff=0)
async def fail_as_unreadable_async() -> None:
    raise UnreadableJob("of another job")


@task(discard_on=KeyError, max_attempts=3, backoff=0)
def never_retry_key_errors() -> None:
    raise KeyError("hopeless")


@task
def surroundings() -> dict[str, str]:
    from django.utils import timezone, translation

    return {"language": str(translation.get_language()), "time_zone": timezone.get_current_timezone_name()}


@task
def local_offset() -> str:
    from django.utils import timezone

    return timezone.localtime().strftime("%z")


@task(transactional=CAN_COMMIT_TOGETHER, max_attempts=2, backoff=0)
def write_once(label: str, outcome: str) -> str:
    write(label)
    if outcome == "raise":
        raise ValueError("after writing")
    if outcome == "lose the claim":
        # Somebody else's rescue, committed while this still runs.
        import psycopg
        from django.db import connection

        with psycopg.connect(**{k: v for k, v in connection.get_connection_params().items() if k in PARAMS}) as other:
            other.execute("UPDATE djqueue_job SET claim = claim + 1, state = 'available'")
    return label


PARAMS = ("dbname", "host", "port", "user", "password")


@task
def leave_a_transaction_open() -> None:
    from django.db import transaction

    transaction.set_autocommit(False)
    write("never committed")


@task
def hoard(mebibytes: int) -> int:
    HOARD.append(b"x" * mebibytes * 2**20)
    return os.getpid()


HOARD: list[bytes] = []


@task(takes_context=True)
def wait_for_cancel(context: Any, label: str) -> None:
    write(label)
    context.cancelled.wait(30)
    raise RuntimeError("stopped half-way")


@task(timeout=1, max_attempts=1)
async def swallow_cancellation() -> str:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        await asyncio.sleep(0.2)
    return "went on"


from tests.ledger import hostile, spoilt  # noqa: E402, F401  their tasks are found with ours


class Held:
    """What a task has in memory."""


held: weakref.WeakSet[Held] = weakref.WeakSet()


@task(max_attempts=1)
def hold_and_fail() -> None:
    holding = Held()
    held.add(holding)
    raise ValueError(id(holding))


@task(max_attempts=1)
async def ahold_and_fail() -> None:
    hold_and_fail.func()
