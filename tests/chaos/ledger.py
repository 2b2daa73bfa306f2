"""Notes that outlive kill -9: a file per process, one line per note, each written with one write() to the end of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DIRECTORY = "CHAOS_LEDGER"
"""The environment variable that says where."""


class Ledger:
    def __init__(self, directory: Path) -> None:
        self._fd = os.open(
            directory / f"{os.getpid()}-{time.monotonic_ns()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND
        )

    def note(self, kind: str, **fields: Any) -> None:
        # What the kernel has taken, no death of this process takes back.
        os.write(self._fd, (json.dumps({"kind": kind, "at": time.monotonic(), **fields}) + "\n").encode())


def read(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the notes of all processes, in no particular order. A half line of a killed process is left out."""
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue
