from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from djqueue.benchmark.record import VARIABLE
from tests.app import tasks
from tests.defaults import default_store, stored
from tests.processes import environment

__all__ = ["default_store"]
pytestmark = [
    pytest.mark.django_db(transaction=True, available_apps=["djqueue"]),
    pytest.mark.usefixtures("default_store"),
]
SMALL = ("--jobs", "200", "--concurrency", "5", "--rates", "50", "--seconds", "0.5")


@pytest.fixture(autouse=True)
def workers_use_the_tests_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", environment()["DATABASE_URL"])


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("benchqueue", *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


@pytest.fixture
def bench_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "record"))
    from djqueue.benchmark import tasks as bench_tasks

    return bench_tasks


def test_it_measures_everything_and_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    foreign = tasks.add.enqueue(1)

    out = run(*SMALL, "--json", str(tmp_path / "figures.json"))

    for name in (
        "add one by one",
        "from 10 threads",
        "bulk",
        "drain",
        "10 ms",
        "pickup at 50/s, p99",
        "delayed",
        "fail",
    ):
        assert name in out
    figures = json.loads((tmp_path / "figures.json").read_text())["backends"]["default"]
    assert all(figure["value"] > 0 for figure in figures)
    assert [str(job.id) for job in stored()] == [foreign.id]
    assert VARIABLE not in os.environ


def test_it_refuses_a_queue_that_is_not_empty(bench_tasks: Any) -> None:
    bench_tasks.noop.enqueue(0)

    with pytest.raises(CommandError, match="There are jobs on queue"):
        run(*SMALL)

    assert len(stored()) == 1


def test_a_job_that_ran_twice_is_found(bench_tasks: Any) -> None:
    from djqueue.benchmark import scenarios
    from djqueue.benchmark.record import current

    benchmark = scenarios.Benchmark("default", bench_tasks.noop.get_backend().engine)
    for index in (0, 1, 1):
        current().begin(index)

    with pytest.raises(scenarios.BenchmarkFailed, match="2 of 3 jobs did not run 1 time"):
        benchmark._check(3)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--backend", "none"), "There is no usable backend 'none'"),
        (("--jobs", "3"), "3 is less than 100"),
        (("--concurrency", "0"), "0 is less than 1"),
    ],
)
def test_wrong_arguments_are_a_sentence(args: tuple[str, ...], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        run(*args)
