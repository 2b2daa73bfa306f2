"""What README.md says, taken apart, and the tables in it that are made from the source.

``python -m tests.readme`` writes the tables anew; tests/test_readme.py fails when they are out of date.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"

_TABLE = re.compile(r"(<!-- table: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class Step(NamedTuple):
    """A block of the tutorial that a comment before it names."""

    kind: str
    """``append`` or ``file`` (text of a file), ``run`` and ``worker`` (commands), ``shell`` (Python for manage.py shell)."""
    argument: str
    text: str


def text() -> str:
    return README.read_text(encoding="utf-8")


def prose() -> str:
    """README without its blocks of code."""
    return re.sub(r"```.*?```", "", text(), flags=re.DOTALL)


def steps() -> Iterator[Step]:
    """The tutorial, in order: each comment such as ``<!-- file: shop/tasks.py -->`` with the block that follows it."""
    pattern = re.compile(
        r"<!-- (append|file|run|worker|shell)(?:: ([^\n]*?))? -->\n(?:```python\n(.*?)```|((?:    [^\n]*\n)+))",
        re.DOTALL,
    )
    for match in pattern.finditer(text()):
        kind, argument, code, commands = match.groups()
        block = code if code is not None else "".join(line[4:] + "\n" for line in commands.splitlines())
        yield Step(kind, argument or "", block)


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", text(), flags=re.DOTALL)


def tables() -> dict[str, str]:
    """The tables as they should be, by name."""
    return {
        "task options": _task_options(),
        "options": _options("Options"),
        "options of PostgresBackend": _options("PostgresOptions"),
        "options of RedisBackend": _options("RedisOptions"),
        "runworker": _runworker(),
        "exceptions": _exceptions(),
    }


def written_tables() -> dict[str, str]:
    """The tables as they stand in README, by name."""
    return {name: body for _, name, body, _ in _TABLE.findall(text())}


def documented_fields(module: str, name: str) -> dict[str, str]:
    """The fields of a class with the docstring below each, as one line."""
    tree = ast.parse((ROOT / "djqueue" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    found = {}
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                said = " ".join(str(following.value.value).split())
            found[node.target.id] = said.replace("``", "`").replace("|", "\\|")
    return found


def _task_options() -> str:
    from djqueue.tasks.task import _STATIC_OPTIONS, Task

    said = documented_fields("tasks.task", "Task")
    fields = Task.__dataclass_fields__
    rows = [f"| `{name}` | {_default(fields[name].default)} | {said[name]} |" for name in _STATIC_OPTIONS]
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _options(name: str) -> str:
    """The options that every backend takes, with the rules in them, or those of one backend."""
    from djqueue import conf

    said = documented_fields("conf", name)
    defaults = getattr(conf, name)()
    rows = [f"| `{option}` | {_default(getattr(defaults, option))} | {words} |" for option, words in said.items()]
    if name == "Options":
        rows += [
            f"| `{place}[…][{rule!r}]` |  | {words} |"
            for place, cls in (("queues", "QueueOptions"), ("tasks", "TaskOptions"))
            for rule, words in documented_fields("conf", cls).items()
        ]
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _runworker() -> str:
    rows = []
    for action in parser("runworker")._actions:
        if action.dest == "skip_checks" or any(action.dest == other.dest for other in parser("check")._actions):
            continue  # of every command
        value = f" {action.metavar}" if action.metavar else ""
        words = (action.help or "") % {"default": action.default}
        rows.append(f"| `{action.option_strings[-1]}{value}` | {words} |")
    return "\n".join(["| option | meaning |", "| --- | --- |", *rows]) + "\n"


def _exceptions() -> str:
    import djqueue

    rows = []
    for name in djqueue.__all__:
        value = getattr(djqueue, name)
        # What Django raises has its own documentation.
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__.startswith("djqueue."):
            words = " ".join((value.__doc__ or "").split()).replace("``", "`").replace("|", "\\|")
            rows.append(f"| `{name}` | {words} |")
    return "\n".join(["| exception | meaning |", "| --- | --- |", *rows]) + "\n"


def parser(command: str) -> argparse.ArgumentParser:
    """The parser of a management command."""
    from django.core.management import get_commands, load_command_class

    app = get_commands()[command]
    assert isinstance(app, str)
    return load_command_class(app, command).create_parser("manage.py", command)


def _default(value: object) -> str:
    if isinstance(value, tuple) and all(isinstance(kind, type) for kind in value):
        names = ", ".join(kind.__name__ for kind in value)
        return f"`({names},)`" if len(value) == 1 else f"`({names})`"
    if isinstance(value, dict) and value:  # retention
        return "`{" + ", ".join(f'"{state}": "{keep.age.days} d"' for state, keep in value.items()) + "}`"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"`{value:_}`"
    return f"`{value!r}`"


def write() -> None:
    made = tables()

    def replaced(match: re.Match[str]) -> str:
        return match[1] + made[match[2]] + match[4]

    README.write_text(_TABLE.sub(replaced, text()), encoding="utf-8")


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    write()
