"""The extras of the package, and what messages say about them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from djqueue import extras

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PYPROJECT["optional-dependencies"]
SOURCES = {path: path.read_text() for path in (ROOT / "djqueue").rglob("*.py")}


def test_t39_a_hint_names_the_packages_of_the_extra() -> None:
    assert {extra: list(packages) for extra, packages in extras.PACKAGES.items()} == {
        extra: EXTRAS[extra] for extra in extras.PACKAGES
    }
    assert extras.install("redis") == "python -m pip install 'redis[hiredis]>=8,<9' 'msgpack>=1.1,<2'"


def test_t39_nothing_tells_to_install_djqueue_from_an_index() -> None:
    """It is not on one: README installs the clone, and everything else the packages themselves."""
    for path, text in [*SOURCES.items(), (ROOT / "README.md", (ROOT / "README.md").read_text())]:
        assert PYPROJECT["name"] not in text, path


@pytest.mark.parametrize("extra", EXTRAS)
def test_t40_every_package_of_an_extra_is_used(extra: str) -> None:
    for requirement in EXTRAS[extra]:
        module = re.match(r"[\w-]+", requirement)[0].replace("-", "_")  # type: ignore[index]

        assert any(re.search(rf"import {module}\b|from {module}\b|\"{module}\"", text) for text in SOURCES.values())
