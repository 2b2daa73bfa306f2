"""How fast is djqueue beside its peers, on this machine, with the same checks for all? See README.bench.md."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.harness import report, scenarios
from bench.harness.installation import ROOT, Installation
from bench.harness.processes import Failure
from bench.harness.results import Results, commit, machine
from bench.harness.runs import Run
from bench.harness.scenarios import SCENARIOS
from bench.harness.servers import Bunqueue, Postgres, Redis, Server, redis
from bench.peers import ours, registry
from bench.peers.registry import Peer

GIVE_UP_AFTER = 2
"""So many failures of a peer in a scenario, and it is not asked again: a failure may take all of its time limit."""


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if options.render:
        results = Results.load(options.render)
        write(results)
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))  # so that every block is left
    peers = registry.find(options.peers, quick=options.quick)
    names = options.scenario.split(",") if options.scenario else scenarios.QUICK if options.quick else tuple(SCENARIOS)
    if unknown := [name for name in names if name not in SCENARIOS]:
        raise SystemExit(f"No scenario is named {', '.join(unknown)}. There are: {', '.join(SCENARIOS)}.")
    deadline = time.monotonic() + 60 * options.budget_minutes if options.budget_minutes else float("inf")
    with database() as url:
        compare(options, peers, list(names), url, deadline)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench compare", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="the main peers and scenarios, three repeats, shorter runs"
    )
    parser.add_argument("--peers", metavar="A,B", help=f"of {', '.join(registry.PEERS)}; NAME@async on PostgreSQL")
    parser.add_argument("--scenario", metavar="A,B", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--repeat", type=int, help="runs of each peer in each scenario (5; quick: 3)")
    parser.add_argument("--seconds", type=float, help="what one run aims at (5; quick: 2.5)")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the jobs, to see whether it works at all")
    parser.add_argument("--budget-minutes", type=float, help="begin no run after so many minutes")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where the result goes; one that is there is gone on with"
    )
    parser.add_argument("--fresh", action="store_true", help="begin FILE anew")
    parser.add_argument("--render", type=Path, metavar="FILE", help="draw a result again, and measure nothing")
    options = parser.parse_args(arguments)
    options.repeat = options.repeat or (3 if options.quick else 5)
    options.seconds = options.seconds or (2.5 if options.quick else 5.0)
    return options


@contextmanager
def database() -> Iterator[str]:
    """Use the server that DATABASE_URL names, else one of our own."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    from djqueue.contrib import embedded

    settings = {"shared_buffers": "1GB", "max_connections": 200}
    with embedded.postgres(ROOT / ".djqueue" / "bench", settings=settings) as server:
        yield server.url


def compare(options: argparse.Namespace, peers: list[Peer], names: list[str], url: str, deadline: float) -> None:
    with ExitStack() as stack:
        postgres = Postgres(url)
        stack.callback(postgres.close)
        servers: dict[str, Server | Failure] = {"postgres": postgres}
        for kind in ("redis-aof", "redis-none"):
            if any(peer.server == kind for peer in peers):
                try:
                    servers[kind] = stack.enter_context(redis(is_durable=kind == "redis-aof"))
                except Failure as failure:
                    servers[kind] = failure
        installation = Installation()
        for kind in ("bunqueue-memory", "bunqueue-sqlite"):
            bunqueue = Bunqueue(installation.bunqueue(), is_durable=kind == "bunqueue-sqlite")
            stack.callback(bunqueue.close)
            servers[kind] = bunqueue
        about: dict[str, Any] = {
            "machine": machine(),
            "commit": commit(),
            "begun": datetime.now(UTC).strftime("%Y-%m-%d"),
            "seconds": options.seconds,
            "scale": options.scale,
            "postgres": postgres.describe(),
            "redis": next((server.describe() for server in servers.values() if isinstance(server, Redis)), None),
        }
        results = Results.open(options.json, about, is_fresh=options.fresh)
        usable = [peer for peer in peers if introduce(peer, servers, installation, results)]
        for repeat in range(options.repeat):
            for name in names:
                if repeat >= SCENARIOS[name].most_repeats:
                    continue
                for peer in usable:
                    if time.monotonic() > deadline:
                        say(f"The time is over; what is left of repeat {repeat + 1} is not measured.")
                        write(results)
                        return
                    if results.has(peer.name, name, repeat) or peer.why_not(name):
                        continue
                    if results.failures(peer.name, name) >= GIVE_UP_AFTER:
                        continue
                    server = servers[peer.server]
                    assert not isinstance(server, Failure)
                    one(peer, name, repeat, server, installation, options, results)
        write(results)


def introduce(peer: Peer, servers: dict[str, Server | Failure], installation: Installation, results: Results) -> bool:
    """Install a peer and note what it is; return whether it can be measured."""
    entry: dict[str, Any] = {
        "durability": peer.durability,
        "server": peer.server,
        "note": peer.note,
        "lacks": {name: reason for name in SCENARIOS if (reason := peer.why_not(name))},
    }
    try:
        server = servers[peer.server]
        if isinstance(server, Failure):
            raise server
        installation.install(peer)
        entry["versions"] = installation.versions(peer)
        if peer.needs and not ours.is_there(peer.needs):
            raise Failure(f"there is no {peer.needs} at this commit")
    except Exception as failure:  # whatever it is, the others are measured
        entry["problem"] = str(failure)[:300] or type(failure).__name__
        say(f"{peer.name}: {entry['problem']}")
    results.peers[peer.name] = entry
    results.save()
    return "problem" not in entry


def one(
    peer: Peer,
    name: str,
    repeat: int,
    server: Server,
    installation: Installation,
    options: argparse.Namespace,
    results: Results,
) -> None:
    """Measure once, and note the answer or the reason why there is none."""
    started = time.monotonic()
    run = Run(peer, server, installation, name, options.seconds, options.scale)
    note: dict[str, Any] = {"peer": peer.name, "scenario": name, "repeat": repeat}
    try:
        run.prepare()
        note |= SCENARIOS[name].measure(run)
    except Exception as failure:  # a peer that fails is reported and stops nobody
        note["problem"] = " ".join(str(failure).split())[:300] or type(failure).__name__
    finally:
        shutil.rmtree(run.folder, ignore_errors=True)
        if isinstance(server, Postgres):
            server.release()
        elif isinstance(server, Bunqueue):
            server.close()
    note["took"] = round(time.monotonic() - started, 1)
    results.add(note)
    outcome = note.get("problem") or f"{note['value']:,.2f} {SCENARIOS[name].unit} ({note['jobs']:,} jobs)"
    say(f"{repeat + 1} · {name} · {peer.name}: {outcome} [{note['took']} s]")


def write(results: Results) -> None:
    text = report.markdown(results)
    if results.path is not None:
        results.path.with_suffix(".md").write_text(text)
        results.path.with_suffix(".svg").write_text(report.svg(results))
    print(text)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
