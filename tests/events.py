"""The events that the source emits, with their levels and fields, read from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tests import readme

OPEN = "…"
"""In place of fields that only the running program knows."""
_OUTCOMES = ("enqueued", "skipped")
"""What ``djqueue.cron.{ticked.outcome}`` stands for: the outcomes of a tick for which the scheduler emits an event."""


class Event(NamedTuple):
    name: str
    level: str
    fields: frozenset[str]


def emitted() -> dict[str, Event]:
    """Every event by name; where several calls emit it, their levels and fields together."""
    found: dict[str, Event] = {}
    for path in sorted((readme.ROOT / "djqueue").rglob("*.py")):
        for function, call in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            for name in _names(call.args[0]):
                event = Event(name.removeprefix("djqueue."), _level(call), frozenset(_fields(call, function)))
                if (other := found.get(event.name)) is not None:
                    level = event.level if event.level == other.level else "varies"
                    event = Event(event.name, level, event.fields | other.fields)
                found[event.name] = event
    return found


def documented() -> dict[str, Event]:
    """The rows of the table in README, by name."""
    section = readme.text().partition("### Logs and telemetry")[2].partition("\n### ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    events = [Event(row[0].strip(" `"), row[1].strip(), frozenset(row[2].replace(",", " ").split())) for row in rows]
    return {event.name: event for event in events}


def _calls(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Call]]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "telemetry.emit":
                yield function, node


def _names(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(name)):
            return [name]
        case ast.IfExp():
            return [*_names(node.body), *_names(node.orelse)]
        case ast.JoinedStr(values=[ast.Constant(value=str(start)), ast.FormattedValue()]):
            return [start + outcome for outcome in _OUTCOMES]
    raise AssertionError(f"The name of an event is not a literal: {ast.unparse(node)}")


def _level(call: ast.Call) -> str:
    if len(call.args) < 2:
        return "info"
    text = ast.unparse(call.args[1])
    return text.removeprefix("logging.").lower() if text.startswith("logging.") and " " not in text else "varies"


def _fields(call: ast.Call, function: ast.AST) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg is None:
            yield from _keys(keyword.value, function)
        elif keyword.arg not in ("exc_info", "exc_text"):
            yield keyword.arg


def _keys(node: ast.expr, function: ast.AST) -> Iterator[str]:
    """The keys of a dict that is written out here or where its name is assigned in the same function."""
    dicts = [each for each in ast.walk(node) if isinstance(each, ast.Dict)]
    if not dicts and not isinstance(node, ast.Name):
        yield OPEN
        return
    if isinstance(node, ast.Name):
        values = [
            each.value
            for each in ast.walk(function)
            if isinstance(each, ast.Assign | ast.AnnAssign)
            and each.value is not None
            and node.id in [ast.unparse(target) for target in getattr(each, "targets", None) or [each.target]]
        ]
        assert values, f"The fields {node.id!r} of an event are not written out in its function."
        for value in values:
            yield from _keys(value, function)
    for each in dicts:
        for key, value in zip(each.keys, each.values, strict=True):
            if isinstance(key, ast.Constant):
                yield str(key.value)
            elif key is None:
                yield from _keys(value, function)
