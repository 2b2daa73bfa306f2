"""Run a server process that cannot outlive us, in a directory of its own."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

# The unprivileged user on nearly every system. Used as a number, because it may have no name in a container.
UNPRIVILEGED_ID = 65534

# The server is started through this little program and not through preexec_fn, which may deadlock when the
# caller has threads (and warns about it since Python 3.12). It becomes the server, so its process id stays.
# ctypes must be imported before the user changes (the new user may be unable to read the standard library),
# prctl called after it (changing the user clears the wish).
_DOORWAY = """
import ctypes, os, sys
parent, user, death_signal = map(int, sys.argv[1:4])
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, death_signal)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent died before the line above
        sys.exit("the process that wanted this server is gone")
os.execv(sys.argv[4], sys.argv[4:])
"""


class EmbeddedError(Exception):
    """An embedded server cannot be had; the message says why and what to do."""


def unprivileged_id() -> int | None:
    """Return the user id that a server must run as, or None when it is our own."""
    return UNPRIVILEGED_ID if os.geteuid() == 0 else None


def spawn(
    command: Sequence[str | Path],
    *,
    directory: Path,
    log: Path,
    libraries: Path | None = None,
    death_signal: signal.Signals,
) -> subprocess.Popen[bytes]:
    """Start a server as an unprivileged user; it gets ``death_signal`` when this process ends, however it
    ends."""
    if threading.current_thread() is not threading.main_thread():
        # Linux sends the signal when the *thread* that started the child ends, which would stop the server
        # far too early.
        raise EmbeddedError(
            "An embedded server ends with the thread that started it, so only the main thread may start one."
        )
    doorway = [sys.executable, "-I", "-S", "-c", _DOORWAY, str(os.getpid()), str(unprivileged_id() or 0)]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*doorway, str(int(death_signal)), *map(str, command)],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C in a terminal goes to the whole process group. The server must outlive those who still
            # use it.
            start_new_session=True,
            env=server_environment(libraries),
        )


def server_environment(libraries: Path | None = None) -> dict[str, str]:
    """Return our environment for a server, without what would change its ways (PGPORT, PGOPTIONS, ...).

    ``libraries`` is searched for shared libraries: some builds can be moved about but do not know it.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    if libraries is not None:
        places = [str(libraries), os.environ.get("LD_LIBRARY_PATH", "")]
        kept["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, places))
    return {**kept, "LC_ALL": "C.UTF-8"}


def end(process: subprocess.Popen[bytes], how: signal.Signals, *, timeout: float) -> bool:
    """Send a signal and wait; return whether the process ended in time."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_until(condition: Callable[[], object], *, timeout: float, interval: float = 0.01) -> bool:
    """Ask until the answer is true or the time is over; return which."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


def is_taken(pid: int) -> bool:
    """Return whether a process of this number exists, be it a dead one that its parent has not waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def is_alive(pid: int) -> bool:
    return is_taken(pid) and command_of(pid) != ""  # the dead have none


def command_of(pid: int) -> str:
    """Return the command line of a process, of whatever user; empty when there is none."""
    if sys.platform != "linux":
        return subprocess.run(
            ["ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False
        ).stdout
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def inhabitants(directory: Path) -> list[int]:
    """Return the processes that sit in this directory, as servers sit in their data directory.

    A look, not a proof: empty outside Linux, and blind where root may not look at other users' processes (in
    many containers).
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(entry) == str(directory):
                found.append(int(entry.parent.name))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def is_free(port: int) -> bool:
    """Whether nothing listens on a TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        # As servers do: connections of the last one that still linger are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
        return True


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now.

    Chosen below the range from which the kernel takes the ports of outgoing connections (32768 on Linux): a
    client that keeps trying to reach a stopped server could otherwise be given that very port, connect to
    itself, and keep the server from coming back.
    """
    for _ in range(200):
        port = random.randint(15_000, 32_000)  # noqa: S311 - nothing secret about a port
        if is_free(port):
            return port
    raise EmbeddedError("No free TCP port was found on 127.0.0.1 between 15000 and 32000.")


# ------------------------------------------------------------------------------------------------ directories


def private_base() -> Path:
    """Return (and make) a directory below /var/tmp that only we can write to.

    For root it belongs to root, and the unprivileged user may only pass through: a process of that
    user can neither replace the programs below nor plant links for root to follow.
    """
    parent = Path("/var/tmp")  # noqa: S108 - the directory made there is checked for its owner
    if not parent.is_dir():
        parent = Path(tempfile.gettempdir())
    base = parent / f"djqueue-{os.geteuid()}"
    make_private(base)
    return base


def make_private(directory: Path) -> None:
    """Make a directory that only we can write to, or make sure that an existing one is ours."""
    with suppress(FileExistsError):  # a file or a dangling link of that name: the check below says so
        directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise EmbeddedError(
            f"{directory} belongs to another user or is not a directory. Remove it, or find out what created it."
        )
    user = unprivileged_id()
    if user is not None:
        os.chown(directory, 0, user)
        directory.chmod(0o710)
    elif status.st_mode & 0o022:
        directory.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can write, and only we and the server's user can read."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
    if (user := unprivileged_id()) is not None:
        os.chown(path, 0, user)
        path.chmod(0o640)


def home_for(directory: Path) -> Path:
    """Return (and make) the place for the files of a server that the caller wants to keep in ``directory``.

    That is ``directory`` itself when we can own it. Otherwise it is a directory below /var/tmp named after
    it: the user that root's servers run as can often not reach the one wanted (below a closed home, say),
    and a checkout may be read-only.
    """
    directory = directory.absolute()
    if unprivileged_id() is None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if directory.stat().st_uid == os.geteuid():
                return directory.resolve()
        except PermissionError:
            pass
    home = private_base() / hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:12]
    make_private(home)
    return home


@contextmanager
def temporary_home() -> Iterator[Path]:
    """Make a place for a server's files, and remove it afterwards; remove those that killed processes left,
    too."""
    base = private_base()
    with Lock(base / "sweep.lock"):  # else another process could sweep ours away between its making and its locking
        for old in base.glob("tmp-*"):
            _remove_if_abandoned(old)
        home = Path(tempfile.mkdtemp(prefix="tmp-", dir=base))
        make_private(home)
        lock = Lock(home / "owner.lock")
        lock.acquire()
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
        lock.release()


def _remove_if_abandoned(home: Path) -> None:
    lock = Lock(home / "owner.lock")
    try:
        if not lock.acquire(timeout=0):
            return
    except OSError:
        return
    try:
        # Its owner is dead, but the server may still be shutting down; then the next one removes it.
        if not any(inhabitants(child) for child in home.iterdir() if child.is_dir()):
            shutil.rmtree(home, ignore_errors=True)
    finally:
        lock.release()


class Lock:
    """A lock between processes; the kernel releases it when its owner dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self, *, timeout: float | None = None) -> bool:
        """Wait for the lock, ``timeout`` seconds at most (None: forever), and return whether we hold it."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.EACCES):
                        raise
                else:
                    self._file = file
                    return True
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                time.sleep(0.02)
        finally:
            if self._file is None:
                os.close(file)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()
