"""Bars in SVG: a panel for each question, a bar for each answer, the value beside it. No library and no script.

The template is Django's, so whatever a name holds is escaped; only positions are computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.template import Context, Engine

_WIDTH, _BAR, _GAP, _TITLE, _LEGEND, _CHARACTER = 860, 16, 5, 34, 46, 6.8
_ROOM_FOR_TEXT = 190
_templates = Engine(dirs=[str(Path(__file__).parent)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    label: str
    value: float
    text: str
    """What is written beside it."""
    colour: str
    low: float | None = None
    """With ``high``: the range that is drawn across its end."""
    high: float | None = None
    is_bold: bool = False

    @property
    def end(self) -> float:
        return self.value if self.high is None else max(self.value, self.high)


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    bars: Sequence[Bar]


def draw(title: str, panels: Sequence[Panel], legend: Mapping[str, str]) -> str:
    """Return the drawing; ``legend`` says what each colour stands for."""
    left = 20 + _CHARACTER * max((len(bar.label) for panel in panels for bar in panel.bars), default=0)
    drawn, top = [], float(_LEGEND)
    for panel in panels:
        drawn.append(_panel(panel, left, top))
        top += _TITLE + len(panel.bars) * (_BAR + _GAP) + 12
    entries, x = [], left
    for text, colour in legend.items():
        entries.append({"x": f"{x:.0f}", "text_x": f"{x + 18:.0f}", "text": text, "colour": colour})
        x += 40 + _CHARACTER * len(text)
    values = {
        "title": title,
        "width": f"{max(_WIDTH, x):.0f}",
        "height": f"{top:.0f}",
        "legend": entries,
        "panels": drawn,
        "bar": _BAR,
    }
    return _templates.get_template("bars.svg").render(Context(values, use_l10n=False))


def _panel(panel: Panel, left: float, top: float) -> dict[str, object]:
    scale = (_WIDTH - left - _ROOM_FOR_TEXT) / (max((bar.end for bar in panel.bars), default=0) or 1)
    bars = []
    for place, bar in enumerate(panel.bars):
        y = top + _TITLE - 6 + place * (_BAR + _GAP)
        middle, end = y + _BAR / 2, max(left + 1, left + bar.end * scale)
        span = ""
        if bar.low is not None and bar.high is not None:
            low, high = left + bar.low * scale, left + bar.high * scale
            span = f"M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 4:.1f}v8M{high:.1f} {middle - 4:.1f}v8"
        bars.append(
            {
                "label": bar.label,
                "text": bar.text,
                "colour": bar.colour,
                "weight": 700 if bar.is_bold else 400,
                "label_x": f"{left - 8:.0f}",
                "x": f"{left:.0f}",
                "y": f"{y:.0f}",
                "text_y": f"{y + 12:.0f}",
                "width": f"{max(1.0, bar.value * scale):.1f}",
                "text_x": f"{end + 6:.1f}",
                "span": span,
            }
        )
    return {"title": panel.title, "y": f"{top + 18:.0f}", "bars": bars}
