"""What all Python drivers share. Knows the standard library only: it is run inside the environment of each peer."""

from __future__ import annotations

import array
import asyncio
import inspect
import json
import math
import os
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CLIENTS = 10
IO_SECONDS = 0.01
CPU_STEPS = 1000
KINDS = ("noop", "io", "cpu", "late", "flaky", "warm")
WARM_UPS = 20
HEAD = struct.Struct("<dddd")  # numbers seen, first start, the process's CPU seconds then, warm-ups run

Numbers = Iterable[int]


class Again(Exception):
    """What a flaky job raises at its first two attempts."""


class Tally:
    """The marks of one process, written out by a thread of its own so that a job pays for one addition only."""

    interval = 0.025

    def __init__(self) -> None:
        self.seen = bytearray(int(os.environ.get("BENCH_JOBS", 0)))
        self.late = array.array("d")
        self.warm = 0
        self.first = self.cpu = 0.0
        self.changes = 0
        self.file = Path(os.environ["BENCH_TALLY"]) / f"{os.getpid()}.tally"
        threading.Thread(target=self._report, daemon=True).start()

    def _report(self) -> None:
        written: tuple[int, int, int] | None = None
        dumped: tuple[int, int, int] | None = None
        dumped_at = time.monotonic()
        while True:
            state = (len(self.seen) - self.seen.count(0), self.changes, self.warm)
            is_quiet = state == written
            if not is_quiet:
                self._write(self.file, HEAD.pack(state[0], self.first, self.cpu, self.warm))
                written = state
            # The long part: when nothing has changed since the last look, and now and then for a worker that is stopped.
            if state != dumped and (is_quiet or time.monotonic() - dumped_at > 1):
                self._write(self.file.with_suffix(".late"), self.late.tobytes())
                self._write(self.file.with_suffix(".seen"), bytes(self.seen))
                dumped, dumped_at = state, time.monotonic()
            time.sleep(self.interval)

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(content)
        new.rename(path)


_tally: Tally | None = None
_owner = 0
_lock = threading.Lock()


def tally() -> Tally:
    """Return the tally of this process; a forked one begins its own."""
    global _tally, _owner
    if _tally is None or _owner != os.getpid():
        with _lock:
            if _tally is None or _owner != os.getpid():
                _tally, _owner = Tally(), os.getpid()
    return _tally


def begin(kind: str, number: int, due: float) -> None:
    """Note that a job has begun; raise ``Again`` if it has to fail now."""
    mine = tally()
    if kind == "warm":
        mine.warm += 1
        return
    if not mine.first:
        mine.cpu, mine.first = time.process_time(), time.time()
    if kind == "late":
        mine.late.append(time.time() - due)
    mine.seen[number] += 1
    if kind == "flaky":
        mine.changes += 1
        if mine.seen[number] < 3:
            raise Again(number)


def run(kind: str, number: int, due: float) -> None:
    """Do a job."""
    begin(kind, number, due)
    if kind == "io":
        time.sleep(IO_SECONDS)
    elif kind == "cpu":
        compute()


def compute() -> None:
    for step in range(CPU_STEPS):
        math.sin(step) * math.cos(step)


async def arun(kind: str, number: int, due: float) -> None:
    """Do a job on an event loop."""
    begin(kind, number, due)
    if kind == "io":
        await asyncio.sleep(IO_SECONDS)
    elif kind == "cpu":
        compute()


class Driver:
    """What a peer has to know. Every method but ``work`` may be sync or async; all of a driver's must be alike."""

    is_async = False

    def setup(self) -> Any:
        """Make the tables in an empty database."""

    def open(self) -> Any:
        """Connect as a producer with up to ``CLIENTS`` connections."""

    def connect(self) -> Any:
        """Connect in this thread, where connections belong to threads."""

    def close(self) -> Any:
        """Disconnect the producer."""

    def add(self, kind: str, number: int, due: float) -> Any:
        """Add one job."""
        raise NotImplementedError

    def add_many(self, kind: str, numbers: Numbers) -> Any:
        """Add many jobs in the best way that the library has."""
        raise NotImplementedError

    def add_at(self, kind: str, number: int, due: float) -> Any:
        """Store a job that becomes due at a moment of ``time.time()``."""
        raise NotImplementedError

    def work(self, options: dict[str, Any]) -> Any:
        """Run a worker with ``options["concurrency"]`` until SIGTERM."""
        raise NotImplementedError


def main(driver: Driver) -> None:
    action, text = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "{}"
    options = json.loads(text)
    if action in ("setup", "work"):
        answer = getattr(driver, action)(options) if action == "work" else driver.setup()
        if inspect.isawaitable(answer):
            answer = _run(_awaited(answer))
    elif driver.is_async:
        answer = _run(_produce_async(driver, action, options))
    else:
        answer = _produce(driver, action, options)
    print(json.dumps(answer), flush=True)


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run on the fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def _chunks(count: int, size: int) -> Iterable[range]:
    return (range(start, min(start + size, count)) for start in range(0, count, size))


def _how(options: dict[str, Any]) -> tuple[int, Iterable[Any]]:
    """Return the number of clients, and what they add: numbers, or chunks of them."""
    how, first, count = options["how"], options.get("first", 0), options["n"]
    size = int(how.partition("bulk")[2] or 0)
    source: Iterable[Any] = _chunks(count, size) if size else range(first, first + count)
    return CLIENTS if how.startswith("conc") else 1, source


def _warm_ups_were_run() -> bool:
    files = Path(os.environ["BENCH_TALLY"]).glob("*.tally")
    return sum(HEAD.unpack(file.read_bytes())[3] for file in files) >= WARM_UPS


def _produce(driver: Driver, action: str, options: dict[str, Any]) -> Any:
    driver.open()
    try:
        if action == "fill":
            for chunk in _chunks(options["n"], 1000):
                driver.add_many(options["kind"], chunk)
            return {}
        if action == "add":
            return _add(driver, options)
        if action == "delay":
            start = time.time() + options["ahead"]
            with ThreadPoolExecutor(CLIENTS) as pool:
                list(pool.map(lambda i: driver.add_at("late", i, start + i * options["gap"]), range(options["n"])))
            return {"ready": time.time() < start}
        return _send(driver, options)
    finally:
        driver.close()


def _add(driver: Driver, options: dict[str, Any]) -> dict[str, float]:
    kind = options["kind"]
    driver.add_many(kind, [])  # whatever a first call prepares
    clients, numbers = _how(options)
    source, lock, added = iter(numbers), threading.Lock(), [0] * CLIENTS
    deadline = time.monotonic() + options["seconds"]

    def client(index: int) -> None:
        while time.monotonic() < deadline:
            with lock:
                item = next(source, None)
            if item is None:
                return
            if isinstance(item, int):
                driver.add(kind, item, 0)
                added[index] += 1
            else:
                driver.add_many(kind, item)
                added[index] += len(item)

    pool, all_there = ThreadPoolExecutor(clients), threading.Barrier(clients)
    list(pool.map(lambda _: (driver.connect(), all_there.wait(30)), range(clients)))
    cpu, started = time.process_time(), time.perf_counter()
    list(pool.map(client, range(clients)))
    answer = {
        "added": sum(added),
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
    }
    pool.shutdown()
    return answer


def _send(driver: Driver, options: dict[str, Any]) -> dict[str, float]:
    rate, count = options["rate"], options["n"]
    with ThreadPoolExecutor(CLIENTS) as pool:
        _warm(lambda: list(pool.map(lambda _: driver.add("warm", 0, 0), range(CLIENTS))))
        cpu, start = time.process_time(), time.time() + 0.1
        futures = []
        for number in range(count):
            due = start + number / rate
            if (wait := due - time.time()) > 0:
                time.sleep(wait)
            futures.append(pool.submit(driver.add, "late", number, due))
        for future in futures:
            future.result()
        return {"seconds": time.time() - start, "cpu": time.process_time() - cpu}


def _warm(send: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    send()
    while not _warm_ups_were_run():
        assert time.monotonic() < deadline, "the worker ran no warm-up within 20 s"
        send()
        time.sleep(0.3)
    time.sleep(0.5)


async def _produce_async(driver: Driver, action: str, options: dict[str, Any]) -> Any:
    await driver.open()
    try:
        if action == "fill":
            for chunk in _chunks(options["n"], 1000):
                await driver.add_many(options["kind"], chunk)
            return {}
        if action == "add":
            return await _add_async(driver, options)
        if action == "delay":
            start = time.time() + options["ahead"]
            source = iter(range(options["n"]))

            async def client() -> None:
                for i in source:
                    await driver.add_at("late", i, start + i * options["gap"])

            await asyncio.gather(*(client() for _ in range(CLIENTS)))
            return {"ready": time.time() < start}
        return await _send_async(driver, options)
    finally:
        await driver.close()


async def _add_async(driver: Driver, options: dict[str, Any]) -> dict[str, float]:
    kind = options["kind"]
    await driver.add_many(kind, [])
    clients, numbers = _how(options)
    source, added = iter(numbers), 0
    deadline = time.monotonic() + options["seconds"]

    async def client() -> None:
        nonlocal added
        while time.monotonic() < deadline:
            item = next(source, None)
            if item is None:
                return
            if isinstance(item, int):
                await driver.add(kind, item, 0)
                added += 1
            else:
                await driver.add_many(kind, item)
                added += len(item)

    cpu, started = time.process_time(), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return {"added": added, "seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}


async def _send_async(driver: Driver, options: dict[str, Any]) -> dict[str, float]:
    rate, count = options["rate"], options["n"]
    deadline = time.monotonic() + 20
    while True:
        await asyncio.gather(*(driver.add("warm", 0, 0) for _ in range(CLIENTS)))
        if _warm_ups_were_run():
            break
        assert time.monotonic() < deadline, "the worker ran no warm-up within 20 s"
        await asyncio.sleep(0.3)
    await asyncio.sleep(0.5)
    slots, tasks = asyncio.Semaphore(CLIENTS), []
    cpu, start = time.process_time(), time.time() + 0.1

    async def send(number: int, due: float) -> None:
        async with slots:
            await driver.add("late", number, due)

    for number in range(count):
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - time.time()))
        tasks.append(asyncio.create_task(send(number, due)))
    await asyncio.gather(*tasks)
    return {"seconds": time.time() - start, "cpu": time.process_time() - cpu}
