"""Runs the tests of the example project, which has Django settings of its own and so needs a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.timeout(1200)
def test_the_example_project() -> None:
    # Rows of the matrix that test the library alone do not install what the example needs.
    for module in ("airportsdata", "fpdf", "httpx", "openpyxl", "PIL", "rich"):
        pytest.importorskip(module)

    # pytest-django puts this suite's settings into the environment, where they win over the example's own.
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "example_project"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
