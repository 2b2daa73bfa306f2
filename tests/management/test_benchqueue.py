from __future__ import annotations

import io
import json
import os
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError, call_command
from django.utils.translation import override

from djqueue import stores as entries
from djqueue.benchmark.figures import Figure, plot, table
from djqueue.benchmark.plot import Bar, Panel, draw
from djqueue.benchmark.record import VARIABLE
from tests.app import tasks
from tests.defaults import default_store, stored
from tests.processes import environment, eventually

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


def nodes(drawn: str, kind: str) -> list[ElementTree.Element]:
    # It is our own drawing, not a stranger's document.
    return [node for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith(f"}}{kind}")]  # noqa: S314


def texts(drawn: str) -> list[str]:
    return [node.text or "" for node in nodes(drawn, "text")]


@pytest.fixture
def bench_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "record"))
    from djqueue.benchmark import tasks as bench_tasks

    return bench_tasks


def test_it_measures_everything_and_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    foreign = tasks.add.enqueue(1)

    out = run(*SMALL, "--json", str(tmp_path / "figures.json"), "--plot", str(tmp_path / "figures.svg"))

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
    drawn = texts((tmp_path / "figures.svg").read_text())
    assert "pickup at 50/s (ms; less is better)" in drawn
    assert len([text for text in drawn if text.startswith("default")]) == 1 + len(figures)  # one is the legend's
    assert [str(job.id) for job in stored()] == [foreign.id]
    assert VARIABLE not in os.environ


def test_several_backends_are_drawn_side_by_side_whatever_their_names_hold() -> None:
    evil = "<script>&\"'"
    backends = {
        alias: [
            Figure("drain", "concurrency 1", 10 * value, "jobs/s"),
            Figure("drain", "concurrency 9", 20 * value, "jobs/s"),
            Figure("pickup", "p99", 1234.5, "ms", False),
        ]
        for alias, value in (("default", 1), (evil, 2))
    }

    drawn = plot("Here & now", backends)

    assert texts(drawn) == [
        *("default", evil),
        "drain (jobs/s; more is better)",
        *("default, concurrency 1", "10.0 jobs/s", f"{evil}, concurrency 1", "20.0 jobs/s"),
        *("default, concurrency 9", "20.0 jobs/s", f"{evil}, concurrency 9", "40.0 jobs/s"),
        "pickup (ms; less is better)",
        *("default, p99", "1,234 ms", f"{evil}, p99", "1,234 ms"),
    ]
    bars = [float(node.get("width", 0)) for node in nodes(drawn, "rect") if node.get("height") == "16"]
    assert bars[:4] == pytest.approx([bars[3] / 4, bars[3] / 2, bars[3] / 2, bars[3]], abs=0.2)
    assert table(backends).splitlines()[1].split() == [
        *["drain,", "concurrency", "1", "10.0", "jobs/s", "20.0", "jobs/s"]
    ]


@override("de")
def test_a_drawing_has_the_numbers_of_svg_whatever_the_language() -> None:
    drawn = draw("", [Panel("x", [Bar(label="y", value=1.5, text="1.5", colour="#000", low=0.5, high=2.5)])], {})

    assert not re.search(r"\d,\d", drawn)


def test_backends_take_turns_and_an_error_names_whose_it_is(bench_tasks: Any) -> None:
    from djqueue.benchmark import scenarios

    asked: list[str] = []

    class Fake(scenarios.Benchmark):
        def refuse_strangers(self) -> None:
            asked.append(f"refuse {self.alias}")

        def clean_up(self) -> None:
            asked.append(f"clean {self.alias}")

        @property
        def scenarios(self) -> Any:
            return self.one, self.two

        def one(self) -> Iterator[Figure]:
            yield Figure("one", "", 1, "ms")

        def two(self) -> Iterator[Figure]:
            raise scenarios.BenchmarkFailed("A job is lost.")
            yield

    engine = entries.store(bench_tasks.noop.backend).engine
    told: list[str] = []
    with pytest.raises(scenarios.BenchmarkFailed, match="left: A job is lost"):
        scenarios.measure([Fake("left", engine), Fake("right", engine)], told.append)

    assert told == ["left: one: 1.0 ms", "right: one: 1.0 ms"]
    assert asked == ["refuse left", "refuse right", "clean left", "clean right", "clean left"]


def test_it_refuses_a_queue_that_is_not_empty(bench_tasks: Any) -> None:
    bench_tasks.noop.enqueue(0)

    with pytest.raises(CommandError, match="There are jobs on queue"):
        run(*SMALL)

    assert len(stored()) == 1


def test_interrupted_it_deletes_what_threads_still_add_too(bench_tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from djqueue.benchmark import scenarios

    join = threading.Thread.join

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        monkeypatch.setattr(threading.Thread, "join", join)
        eventually(lambda: len(stored()) > 0)
        raise KeyboardInterrupt

    def add_from_threads(benchmark: scenarios.Benchmark) -> Iterator[Figure]:
        monkeypatch.setattr(threading.Thread, "join", interrupted)
        yield from scenarios.Benchmark.add_from_threads(benchmark)

    monkeypatch.setattr(scenarios.Benchmark, "scenarios", property(lambda self: (partial(add_from_threads, self),)))
    err = io.StringIO()

    with pytest.raises(SystemExit) as exit:
        call_command("benchqueue", "--jobs", "100000", stderr=err)

    assert exit.value.code == 130
    assert err.getvalue() == "Interrupted; the jobs of the benchmark are deleted.\n"
    assert stored() == []


def test_a_job_that_ran_twice_is_found(bench_tasks: Any) -> None:
    from djqueue.benchmark import scenarios
    from djqueue.benchmark.record import current

    benchmark = scenarios.Benchmark("default", entries.store(bench_tasks.noop.backend).engine)
    for index in (0, 1, 1):
        current().begin(index)

    with pytest.raises(scenarios.BenchmarkFailed, match="2 of 3 jobs did not run 1 time"):
        benchmark._check(3)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--backend", "none"), "Cannot use the backend 'none' of TASKS"),
        (("--jobs", "3"), "Invalid --jobs 3: use a number from 100"),
        (("--concurrency", "0"), "Invalid --concurrency '0': use numbers from 1, separated by commas"),
        (("--rates", "5,a"), "Invalid --rates '5,a': use numbers from 1, separated by commas"),
        (("--plot", "no/such/place.svg"), "its directory does not exist"),
    ],
)
def test_wrong_arguments_are_a_sentence(args: tuple[str, ...], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        run(*args)


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1", "x", "1e9"])
def test_seconds_that_never_end_or_send_nothing_are_refused(seconds: str) -> None:
    with pytest.raises(CommandError, match=rf"--seconds: Invalid number of seconds '{seconds}': use 0.1 to 3600"):
        run("--seconds=" + seconds)


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_directory_is_refused_before_anything_is_measured(option: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"Cannot write .*: it is a directory"):
        run(option, str(tmp_path))


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_figures_that_cannot_be_written_are_reported_in_a_sentence(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("djqueue.benchmark.scenarios.measure", lambda benchmarks, tell: {"default": []})

    with pytest.raises(CommandError, match=r"Cannot write /dev/full: No space left on device\."):
        run(option, "/dev/full")
