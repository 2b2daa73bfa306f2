"""What was measured, of several backends side by side: as a table, as plain values, as a drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from djqueue.benchmark.plot import Bar, Panel, draw
from djqueue.management.terminal import columns

_COLOURS = ("#2f6f4f", "#b07d2b", "#4b6fa8", "#a8485a", "#7a5ba6", "#5f6b6d")


@dataclass(frozen=True, slots=True)
class Figure:
    scenario: str
    detail: str
    """Which of the scenario's figures: ``"concurrency 10"``, ``"p99"``. Empty: it has one."""
    value: float
    unit: str
    more_is_better: bool = True

    @property
    def name(self) -> str:
        return f"{self.scenario}, {self.detail}" if self.detail else self.scenario

    def __str__(self) -> str:
        return f"{self.value:,.0f} {self.unit}" if self.value >= 100 else f"{self.value:,.1f} {self.unit}"


Figures = Mapping[str, Sequence[Figure]]
"""Alias of a backend → its figures, in the order in which they were asked for: the same for all."""


def table(backends: Figures) -> str:
    """Lay the figures of several backends side by side."""
    rows = [["", *backends], *([row[0].name, *map(str, row)] for row in zip(*backends.values(), strict=True))]
    return "\n".join(columns(rows, right=range(1, len(rows[0]))))


def as_json(backends: Figures) -> dict[str, Any]:
    """Return the figures per backend as plain values."""
    return {
        alias: [{"name": each.name, "value": round(each.value, 3), "unit": each.unit} for each in found]
        for alias, found in backends.items()
    }


def plot(title: str, backends: Figures) -> str:
    """Draw the figures in SVG: a panel for each scenario, a colour for each backend."""
    colours = {alias: _COLOURS[place % len(_COLOURS)] for place, alias in enumerate(backends)}
    titles: dict[str, str] = {}
    bars: dict[str, list[Bar]] = {}
    for row in zip(*backends.values(), strict=True):
        first = row[0]
        direction = "more is better" if first.more_is_better else "less is better"
        titles[first.scenario] = f"{first.scenario} ({first.unit}; {direction})"
        bars.setdefault(first.scenario, []).extend(
            Bar(
                label=f"{alias}, {each.detail}" if each.detail else alias,
                value=each.value,
                text=str(each),
                colour=colours[alias],
            )
            for alias, each in zip(backends, row, strict=True)
        )
    return draw(title, [Panel(titles[scenario], drawn) for scenario, drawn in bars.items()], colours)
