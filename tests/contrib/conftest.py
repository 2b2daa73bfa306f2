from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from djqueue.contrib.embedded import process


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory to keep data in; what root's servers keep elsewhere is removed afterwards."""
    directory = tmp_path / "data"
    yield directory
    shutil.rmtree(process.home_for(directory))


@pytest.fixture
def owners() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for owner in started:
        owner.communicate(timeout=30)
