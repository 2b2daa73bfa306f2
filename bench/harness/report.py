"""Draw a result as tables in Markdown and as a plot in SVG."""

from __future__ import annotations

from collections.abc import Callable

from bench.harness.figures import number
from bench.harness.results import Cell, Results
from bench.harness.scenarios import SCENARIOS, Scenario
from djqueue.benchmark.plot import Bar, Panel, draw

OURS = "djqueue"


def markdown(results: Results) -> str:
    about, cells = results.about, results.cells()
    scenarios = [scenario for name, scenario in SCENARIOS.items() if any(key[1] == name for key in cells)]
    rates = [scenario for scenario in scenarios if scenario.higher_is_better]
    waits = [scenario for scenario in scenarios if not scenario.higher_is_better]
    parts = [
        f"Machine: {about['machine']}. Commit {about['commit']}, {about['begun']}.",
        f"PostgreSQL {about['postgres'].get('server_version')}"
        f" (fsync {about['postgres'].get('fsync')}, synchronous_commit {about['postgres'].get('synchronous_commit')},"
        f" shared_buffers {about['postgres'].get('shared_buffers')})"
        + (f"; {about['redis']}." if about.get("redis") else "."),
        f"Medians of {_runs(results)} interleaved runs with their ranges; every run checked that each job was stored and"
        " ran exactly once.",
    ]
    if rates:
        parts += ["### Jobs per second", _table(results, rates, lambda cell, _: _value(cell))]
    if waits:
        parts += [
            "### Latency in ms: p50 / p99 (medians over the runs)",
            _table(results, waits, lambda cell, _: _latency(cell)),
        ]
    parts += ["### Times faster than each peer", _ratios(results, scenarios)]
    parts += ["### CPU seconds per 1,000 jobs: client + server", _table(results, scenarios, lambda cell, _: _cpu(cell))]
    for title, rows in (
        ("A backlog: jobs run/s · added one by one/s · MiB that it takes · MiB of the worker", _backlog(results)),
        ("A snapshot held open: jobs/s · in the last tenth · of the last tenth without", _snapshot(results)),
    ):
        if rows:
            parts += [f"### {title}", _rows([["peer", *title.partition(": ")[2].split(" · ")], *rows])]
    on_postgres = [name for name, peer in results.peers.items() if peer.get("server") == "postgres"]
    parts += [
        "### Written on PostgreSQL per job: WAL bytes · commits · dead tuples left",
        _table(results, scenarios, lambda cell, _: _written(cell), only=on_postgres),
    ]
    parts += ["### Peers", _peers(results)]
    problems = [
        f"- {name}, {scenario}: {problem}"
        for (name, scenario), cell in cells.items()
        for problem in dict.fromkeys(cell.problems)
    ]
    if problems:
        parts += ["### What did not work", "\n".join(problems)]
    return "\n\n".join(parts) + "\n"


def _runs(results: Results) -> str:
    counts = sorted({len(cell.good) for cell in results.cells().values() if cell.good})
    return "0" if not counts else str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _table(
    results: Results,
    scenarios: list[Scenario],
    write: Callable[[Cell, Scenario], str],
    *,
    only: list[str] | None = None,
) -> str:
    cells = results.cells()
    rows = [["peer", *(scenario.name for scenario in scenarios)]]
    for name in results.names() if only is None else only:
        row = [name]
        for scenario in scenarios:
            cell = cells.get((name, scenario.name))
            row.append(_absent(results, name, scenario) if cell is None else write(cell, scenario))
        if any(row[1:]):
            rows.append(row)
    return _rows(rows)


def _rows(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, f"| {' | '.join(['---'] * len(rows[0]))} |")
    return "\n".join(lines)


def _absent(results: Results, name: str, scenario: Scenario) -> str:
    peer = results.peers[name]
    return "n/a" if "problem" in peer else ("–" if scenario.name in peer.get("lacks", {}) else "")


def _value(cell: Cell) -> str:
    figure = cell.figure()
    return "failed" if figure is None else str(figure)


def _latency(cell: Cell) -> str:
    median, high = cell.figure(), cell.figure("p99")
    if median is None or high is None:
        return "failed"
    return f"{number(median.median)} / {number(high.median)}"


def _cpu(cell: Cell) -> str:
    client, server = cell.figure("client_cpu"), cell.figure("server_cpu")
    if client is None:
        return ""
    return f"{number(client.median)} + {number(server.median) if server else '?'}"


def _written(cell: Cell) -> str:
    figures = [cell.figure(key) for key in ("wal_bytes", "commits", "dead_tuples")]
    return " · ".join(number(figure.median) if figure else "?" for figure in figures) if any(figures) else ""


def _p99(cell: Cell | None) -> str:
    figure = cell.figure("p99") if cell else None
    return number(figure.median) if figure else "?"


def _backlog(results: Results) -> list[list[str]]:
    rows = []
    for name in results.names():
        if (cell := results.cells().get((name, "backlog"))) and cell.good:
            run, added = cell.figure(), cell.figure("added")
            sizes = [cell.figure(key) for key in ("backlog_bytes", "worker_bytes")]
            rows.append([name, str(run), str(added), *(number(each.median / 2**20) if each else "?" for each in sizes)])
    return rows


def _snapshot(results: Results) -> list[list[str]]:
    cells, rows = results.cells(), []
    for name in results.names():
        if (cell := cells.get((name, "snapshot"))) and cell.good:
            last, without = cell.figure("last_tenth"), None
            if free := cells.get((name, "drain_c10")):
                without = free.figure("last_tenth")
            share = f"{100 * last.median / without.median:.0f} %" if last and without else "?"
            rows.append([name, str(cell.figure()), str(last or "?"), share])
    return rows


def _ratios(results: Results, scenarios: list[Scenario]) -> str:
    cells = results.cells()
    rows = [[f"{OURS} against", *(scenario.name for scenario in scenarios)]]
    for name in results.names():
        if name == OURS:
            continue
        row = [name]
        for scenario in scenarios:
            ours, theirs = cells.get((OURS, scenario.name)), cells.get((name, scenario.name))
            mine = ours.figure() if ours else None
            other = theirs.figure() if theirs else None
            if mine is None or other is None:
                row.append("")
                continue
            ratio = mine.median / other.median if scenario.higher_is_better else other.median / mine.median
            row.append(f"{number(ratio)} ×")
        if any(row[1:]):
            rows.append(row)
    return _rows(rows)


def _peers(results: Results) -> str:
    rows = [["peer", "durability", "server", "versions", "note"]]
    for name, peer in results.peers.items():
        versions = ", ".join(f"{package} {version}" for package, version in peer.get("versions", {}).items())
        note = peer.get("problem") or peer.get("note") or ""
        rows.append([name, peer["durability"], peer["server"], versions, note.replace("|", "/")])
    return _rows(rows)


# ------------------------------------------------------------------------------------------------------- plot

COLOURS = {"durable": "#2f6f4f", "everysec": "#b07d2b", "none": "#9a9a9a"}
LEGEND = {
    "durable": COLOURS["durable"],
    "up to 1 s may be lost": COLOURS["everysec"],
    "no persistence": COLOURS["none"],
}


def svg(results: Results) -> str:
    """Draw a bar with its range for each peer, a panel for each scenario; colours stand for the durability."""
    cells = results.cells()
    panels = []
    for name, scenario in SCENARIOS.items():
        bars = []
        for peer in results.names():
            cell = cells.get((peer, name))
            figure = cell.figure() if cell else None
            if figure is not None:
                bars.append(
                    Bar(
                        label=peer,
                        value=figure.median,
                        text=str(figure) if scenario.higher_is_better else f"{figure} · p99 {_p99(cell)}",
                        colour=COLOURS[results.peers[peer]["durability"]],
                        low=figure.low,
                        high=figure.high,
                        is_bold=peer.startswith(OURS),
                    )
                )
        if bars:
            bars.sort(key=lambda bar: bar.value, reverse=scenario.higher_is_better)
            direction = "more is better" if scenario.higher_is_better else "p50, less is better"
            panels.append(Panel(f"{scenario.title} ({scenario.unit}; {direction})", bars))
    about = results.about
    return draw(f"djqueue and its peers, {about['machine']}, {about['commit']}", panels, LEGEND)
