"""Programs that cannot outlive the run, and the CPU seconds of a process tree, read from /proc."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Failure(Exception):
    """A peer did not do what was asked; the message goes into the table."""


def die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def run(
    command: Sequence[str | Path], *, environment: Mapping[str, str], timeout: float, directory: Path | None = None
) -> str:
    """Run a program to its end and return what it printed; it and its children are gone afterwards, whatever happens."""
    with started(command, environment=environment, directory=directory) as process:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"took longer than {timeout:.0f} s") from None
        if process.returncode:
            raise Failure(f"ended with {process.returncode}: {complaint(process)}")
        return output(process)


@contextmanager
def started(
    command: Sequence[str | Path], *, environment: Mapping[str, str], directory: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program for the length of a block, in a session of its own that is ended with it."""
    # Files and no pipes: nobody has to read them while the program runs.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=dict(environment),
            cwd=directory,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        process.out, process.err = out, err  # type: ignore[attr-defined]
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes], *, patience: float = 8) -> None:
    """Ask a program to end, then make it end together with whatever is left of its session."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def output(process: subprocess.Popen[bytes]) -> str:
    return _read(process.out)  # type: ignore[attr-defined]


def complaint(process: subprocess.Popen[bytes]) -> str:
    """Return the end of what a program complained about, in one line."""
    text = _read(process.err) or _read(process.out)  # type: ignore[attr-defined]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The names of files tell about the machine and nothing about the cause.
    lines = [line for line in lines if not line.startswith(("at ", "File ", "^", "~", "Node.js "))]
    return " · ".join(lines[-4:])[-400:]


def _read(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    return file.read().decode(errors="replace")  # type: ignore[attr-defined]


def tree(root: int) -> set[int]:
    """Return a process and its descendants."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parents[int(entry.name)] = int(_fields(int(entry.name))[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found


def cpu_of(pids: set[int]) -> dict[int, float]:
    """Return the CPU seconds of each process, those of its children that have ended included."""
    seconds = {}
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):
            seconds[pid] = sum(map(int, _fields(pid)[11:15])) / TICKS
    return seconds


def tree_cpu(root: int) -> float:
    return sum(cpu_of(tree(root)).values())


def _fields(pid: int) -> list[str]:
    # The second field is the program's name in parentheses, which may hold anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()


def wait_for(condition: object, seconds: float, what: str, *, interval: float = 0.01) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise Failure(what)
        time.sleep(interval)


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process has resident, shared pages included (0 when it is gone)."""
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
