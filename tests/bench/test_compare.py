"""The comparison itself, without any rival: what it does with words, files and failures, and one tiny run of djqueue."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import compare
from bench.harness import report
from bench.harness.results import Results
from bench.harness.scenarios import SCENARIOS
from bench.peers import registry

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "bench" / "peers"


def about(**changes: Any) -> dict[str, Any]:
    return {
        "machine": "2 cores",
        "commit": "abc",
        "begun": "2026-01-01",
        "seconds": 1.0,
        "scale": 1.0,
        "postgres": {"server_version": "18"},
        "redis": None,
        **changes,
    }


def run_of(peer: str, scenario: str, repeat: int, **values: Any) -> dict[str, Any]:
    return {"peer": peer, "scenario": scenario, "repeat": repeat, **values}


# ----------------------------------------------------------------------------------------------------- words


def test_quick_means_fewer_and_shorter_runs() -> None:
    options = compare.parse(["--quick"])

    assert (options.repeat, options.seconds) == (3, 2.5)


def test_what_is_said_beats_quick() -> None:
    options = compare.parse(["--quick", "--repeat", "1", "--seconds", "9", "--budget-minutes", "25"])

    assert (options.repeat, options.seconds, options.budget_minutes) == (1, 9, 25)


def test_the_main_peers_are_all_known() -> None:
    assert [peer.name for peer in registry.find(None, quick=True)] == list(registry.QUICK)


def test_a_peer_on_postgres_can_be_asked_for_without_synchronous_commit() -> None:
    [peer] = registry.find("graphile:batch@async", quick=False)

    assert (peer.name, peer.durability) == ("graphile:batch@async", "everysec")


@pytest.mark.parametrize("name", ["nobody", "bullmq@aof@async", "nobody@async"])
def test_an_unknown_peer_is_named_in_the_error(name: str) -> None:
    with pytest.raises(SystemExit, match=name):
        registry.find(f"djqueue,{name}", quick=False)


def test_an_unknown_scenario_is_named_in_the_error() -> None:
    with pytest.raises(SystemExit, match="nothing"):
        compare.main(["--scenario", "nothing"])


# ----------------------------------------------------------------------------------------------------- peers


@pytest.mark.parametrize("peer", registry.PEERS.values(), ids=lambda peer: peer.name)
def test_a_peer_has_a_driver_and_knows_how_to_see_that_all_is_done(peer: registry.Peer) -> None:
    assert (PEERS / peer.driver).exists()
    assert peer.unfinished
    if peer.environment != "own" and not peer.environment.startswith("npm"):
        assert (PEERS / f"{peer.environment}.txt").exists()


def test_versions_are_exact_and_files_hold_no_addresses() -> None:
    manifest = json.loads((PEERS / "package.json").read_text())
    versions = [*manifest["dependencies"].values(), *manifest["optionalDependencies"].values()]
    lines = [line for file in PEERS.glob("*.txt") for line in file.read_text().splitlines()]

    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)
    assert all(re.match(r"[\w.-]+==[\w.]+(;|$)", line) for line in lines), lines


# --------------------------------------------------------------------------------------------------- results


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    first = Results.open(file, about(), is_fresh=False)
    first.add(run_of("djqueue", "add_seq", 0, value=1.0))
    first.add(run_of("djqueue", "drain_c1", 0, problem="no server"))

    again = Results.open(file, about(begun="2026-01-02"), is_fresh=False)

    assert again.has("djqueue", "add_seq", 0)
    assert not again.has("djqueue", "drain_c1", 0)
    assert not again.has("djqueue", "add_seq", 1)
    assert again.about["begun"] == "2026-01-01"


@pytest.mark.parametrize("change", [{"commit": "def"}, {"machine": "4 cores"}, {"seconds": 2.0}])
def test_figures_of_different_code_or_machines_are_not_mixed(tmp_path: Path, change: dict[str, Any]) -> None:
    file = tmp_path / "result.json"
    Results.open(file, about(), is_fresh=False).save()

    with pytest.raises(SystemExit, match=next(iter(change))):
        Results.open(file, about(**change), is_fresh=False)
    assert not Results.open(file, about(**change), is_fresh=True).runs


def test_tables_and_plot_show_figures_failures_and_absent_peers() -> None:
    results = Results(None, about())
    shown = {"durability": "durable", "server": "postgres", "note": "", "lacks": {}, "versions": {"x": "1"}}
    results.peers = {
        "djqueue": shown,
        "slow<er>": shown,
        "broken": {**shown, "problem": "not installed: no network"},
    }
    results.runs = [
        run_of(
            "djqueue",
            "drain_c10",
            0,
            value=300.0,
            client_cpu=0.02,
            server_cpu=0.01,
            wal_bytes=9.0,
            commits=1,
            dead_tuples=0,
        ),
        run_of("djqueue", "drain_c10", 1, value=500.0, client_cpu=0.02, server_cpu=None),
        run_of("djqueue", "lat_100", 0, value=1.5, p99=4.0),
        run_of("djqueue", "drain_c10", 2, value=400.0, last_tenth=800.0),
        run_of("djqueue", "snapshot", 0, value=390.0, last_tenth=720.0),
        run_of("djqueue", "backlog", 0, value=380.0, added=70.0, backlog_bytes=300 * 2**20, worker_bytes=60 * 2**20),
        run_of("slow<er>", "drain_c10", 0, value=100.0),
        run_of("slow<er>", "lat_100", 0, problem="cannot keep up"),
    ]

    text, drawn = report.markdown(results), report.svg(results)

    assert "| djqueue | 400 (300–500) |" in text
    assert "| slow<er> | 4.00 × |" in text
    assert "1.50 / 4.00" in text
    assert "| djqueue | 390 | 720 | 90 % |" in text
    assert "| djqueue | 380 | 70.0 | 300 | 60.0 |" in text
    assert "not installed: no network" in text
    assert "- slow<er>, lat_100: cannot keep up" in text
    # It is our own drawing, not a stranger's document.
    titles = [node.text for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("text")]  # noqa: S314
    assert {"slow<er>", "1.50 · p99 4.00"} <= set(titles)


def test_a_peer_is_not_asked_what_makes_no_sense_for_it() -> None:
    for peer in registry.PEERS.values():
        assert bool(peer.why_not("snapshot")) >= (not peer.is_on_postgres)
        assert not peer.why_not("lat_100")
        for scenario in SCENARIOS:
            assert peer.speed(scenario) > 0, (peer.name, scenario)
    assert registry.PEERS["djqueue"].speed("io_c10") == 900


# ----------------------------------------------------------------------------------------------------- a run


@pytest.mark.timeout(400)  # some fifteen short programs and checkpoints, on a machine that may have much else to do
def test_a_tiny_run_of_djqueue_delivers_each_job_once(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    # 30,000 expected jobs/s × 1 s × the scale = 210 jobs.
    options = ["--scale", "0.007", "--seconds", "1", "--repeat", "1", "--json", str(file)]
    command = [sys.executable, "-m", "bench", "compare", "--peers", "djqueue", *options]

    ended = subprocess.run(
        [*command, "--scenario", "add_bulk1000,drain_c10,retry,snapshot,backlog"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    runs = {run["scenario"]: run for run in json.loads(file.read_text())["runs"]}
    assert [run.get("problem") for run in runs.values()] == [None] * 5
    assert runs["drain_c10"]["jobs"] == 210
    assert runs["drain_c10"]["wal_bytes"] > 0
    assert runs["backlog"]["backlog_bytes"] > 0
    assert file.with_suffix(".md").exists()
    ElementTree.fromstring(file.with_suffix(".svg").read_text())  # noqa: S314 - our own drawing
