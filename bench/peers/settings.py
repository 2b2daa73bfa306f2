"""Settings of djqueue in the comparison: those of the other benchmarks, with its own tasks."""

from __future__ import annotations

from bench.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "bench.peers"]  # noqa: F405
