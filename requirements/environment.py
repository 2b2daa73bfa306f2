"""Virtual environments with exactly the packages of a lock, made with the standard library and pip; for run.py.

The locks are beside this file; `.venv*` in the root of the checkout are the environments; a stamp says what is in each.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".djqueue"
STAMP = "djqueue-stamp.json"
PYTHONS = ("3.13", "3.12", "3.11")


class Problem(Exception):
    """Something that the user has to know, in a sentence."""


class NoPython(Problem):
    pass


def environment(venv: Path, lock: str, *, versions: tuple[str, ...] = PYTHONS) -> Path:
    """Return the interpreter of a virtual environment that holds exactly the packages of a lock, making it if
    need be."""
    if is_ready(venv, lock):  # without waiting for the lock, and in a checkout that is read-only
        return venv / "bin" / "python"
    with locked(STATE / "run.lock"):
        return environment_locked(venv, lock, versions)


def environment_locked(venv: Path, lock: str, versions: tuple[str, ...]) -> Path:
    if not is_ready(venv, lock):  # perhaps the process that held the lock has made it
        make_environment(venv, lock, versions)
    return venv / "bin" / "python"


def is_ready(venv: Path, lock: str) -> bool:
    try:
        stamp = json.loads((venv / STAMP).read_text())
    except (OSError, ValueError):
        return False
    wanted = os.environ.get("DJQUEUE_PYTHON") if venv.name == ".venv" else None
    return (
        stamp["lock"] == fingerprint(lock)
        and stamp["root"] == str(ROOT)  # a moved or copied checkout: the scripts in bin name the old place
        and (wanted is None or stamp["wanted"] == wanted)
        and Path(stamp["python"]).exists()
        and (venv / "bin" / "python").exists()
    )


def fingerprint(lock: str) -> str:
    return hashlib.sha256((ROOT / "requirements" / f"{lock}.txt").read_bytes()).hexdigest()


def make_environment(venv: Path, lock: str, versions: tuple[str, ...]) -> None:
    """Make the environment anew. The stamp is written last: whatever is found without one was interrupted,
    and is thrown away."""
    wanted = os.environ.get("DJQUEUE_PYTHON") if venv.name == ".venv" else None
    base = find_python(versions, wanted)
    started = time.monotonic()
    print(f"Making {venv.name} with {base} ...", file=sys.stderr, flush=True)
    remove(venv)
    run_or_explain([base, "-m", "venv", venv], f"{base} could not make a virtual environment")
    python = venv / "bin" / "python"
    install = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    run_or_explain(
        [python, "-m", "pip", *install, "-r", ROOT / "requirements" / f"{lock}.txt"],
        "The locked packages could not be installed",
    )
    # The checkout itself, without building it.
    site_packages = next((venv / "lib").glob("python3*/site-packages"))
    (site_packages / "djqueue-checkout.pth").write_text(f"{ROOT}\n")
    stamp = {"lock": fingerprint(lock), "root": str(ROOT), "python": str(base), "wanted": wanted}
    new = venv / f"{STAMP}.new"
    new.write_text(json.dumps(stamp))
    new.rename(venv / STAMP)
    print(f"Made {venv.name} in {time.monotonic() - started:.0f} s.", file=sys.stderr, flush=True)


def remove(venv: Path) -> None:
    """Remove an environment; its stamp first, so that an interrupted removal does not leave half of it
    looking complete."""
    (venv / STAMP).unlink(missing_ok=True)
    if venv.exists():
        shutil.rmtree(venv)


def find_python(versions: tuple[str, ...], wanted: str | None) -> Path:
    """Return the newest interpreter that really runs: names on the PATH may be shims of pyenv with nothing
    behind them."""
    if wanted:
        answer = probe(shutil.which(wanted) or wanted)
        if answer is None:
            raise NoPython(
                f"DJQUEUE_PYTHON is {wanted}, which does not run, or lacks one of venv, ensurepip and ctypes."
            )
        if answer[0] not in versions:
            raise NoPython(f"DJQUEUE_PYTHON is {wanted}, Python {answer[0]}; djqueue supports {', '.join(versions)}.")
        return answer[1]
    for version in versions:
        for candidate in candidates(version):
            answer = probe(candidate)
            if answer is not None and answer[0] == version:
                return answer[1]
    raise NoPython(
        f"No working Python {' or '.join(versions)} was found on the PATH or among those of pyenv and uv. "
        "Install one (on Debian and Ubuntu with its venv package: apt install python3 python3-venv), "
        "or point DJQUEUE_PYTHON at it."
    )


def candidates(version: str) -> list[str]:
    found = [sys.executable] if sys.version_info[:2] == tuple(map(int, version.split("."))) else []
    names = (f"python{version}", "python3")
    found += [
        path for name in names for folder in os.get_exec_path() if os.path.exists(path := os.path.join(folder, name))
    ]
    home = Path.home()
    places = [
        Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions",
        home / ".local" / "share" / "uv" / "python",
    ]
    for place in places:
        found += sorted((str(path) for path in place.glob(f"*{version}.*/bin/python{version}")), reverse=True)
    return list(dict.fromkeys(found))


def probe(candidate: str) -> tuple[str, Path] | None:
    """Return the version and the true path of an interpreter, or None when it does not run or cannot make
    environments."""
    question = (
        "import sys, ctypes, ensurepip, ssl, venv; print('%d.%d' % sys.version_info[:2]); print(sys._base_executable)"
    )
    try:
        answer = subprocess.run(
            [candidate, "-I", "-c", question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    return (answer[0], Path(answer[1])) if len(answer) == 2 else None


@contextlib.contextmanager
def locked(path: Path):
    """Hold a lock between processes; the kernel releases it when its owner dies."""
    import fcntl

    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("a") as file:
        # Passed on to pip and its like: they survive us when we are killed, and must not write into what the
        # next run makes. The lock is held until the last of them is gone.
        os.set_inheritable(file.fileno(), True)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another run.py is at work here; waiting for it ...", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_or_explain(command: list[object], problem: str) -> None:
    # close_fds=False: see locked().
    result = subprocess.run([str(part) for part in command], cwd=ROOT, close_fds=False, check=False)
    if result.returncode:
        raise Problem(f"{problem} (see above). Nothing is half done: run it again.")
