#!/usr/bin/env python3
"""Find wordings that are archaic, idiomatic or hard to translate: english.py ROOT

Checks the strings of Python files (messages, help texts) and, except in the directories of MESSAGES_ONLY,
docstrings and comments. Exits 1 if it finds any.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

_PATTERNS = {
    r"(?<![Tt]here )\bis no (?!longer|more)[a-z]": 'Not "X is no queue name" but "Invalid queue name X: <rule>".',
    r"\b(?:N|n)obody\b": 'Name the actor, or use the passive: "is not read", "no process".',
    r"\b(?:S|s)omebody\b": 'Name the actor: "another process", "a user".',
    r"\b(?:W|w)hoever\b": 'Use "a user who", "the process that".',
    r"\b(?:H|h)e (?:that|who)\b|\bhim\b|\bhis\b|\bhe\b": 'Name the actor or use "they": processes and users are not "he".',
    r"\b(?:is|are|was|were|be) told\b(?! apart)|\btold (?:of|to)\b": 'Use "reported", "notified" or "configured".',
    r"\bSo much for\b|\bso much for\b": "A literal statement instead of an idiom.",
    r"\bthe default stands in\b": 'Use "falling back to the default".',
    r"\bheed(?:s|ed)?\b|\blest\b|\bwhom\b": "A common word instead of an archaic one.",
    r"\bsays nothing\b|\bwithout a word\b|\bhas no word\b": 'Use "is not reported" or "silently".',
    r"\bthere and then\b|\bever so\b|\bfor ever\b": 'Use "immediately" or "forever".',
    r"\bleft as (?:it|they) (?:was|were)\b": 'Use "unchanged" or "skipped (<reason>)".',
}
PATTERNS = [(re.compile(pattern), reason) for pattern, reason in _PATTERNS.items()]


def texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text, and whether it is prose (a comment or a docstring) rather than a string that is used."""
    for node in ast.walk(tree := ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.is_prose = True  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value, hasattr(node, "is_prose")
    # One text per block of comment lines, where a phrase may run on.
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(iter(source.splitlines(keepends=True)).__next__):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and block:
            yield start, " ".join(block), True
            block = []
        start, last = token.start[0] if not block else start, token.start[0]
        block.append(token.string.lstrip("# "))
    if block:
        yield start, " ".join(block), True


def find(source: str, *, with_prose: bool) -> Iterator[tuple[int, str, str]]:
    """Yield line, wording and reason for each wording that a pattern matches."""
    for line, text, is_prose in texts(source):
        if with_prose or not is_prose:
            flat = re.sub(r"\s+", " ", text)
            for pattern, reason in PATTERNS:
                if match := pattern.search(flat):
                    yield line, flat[max(0, match.start() - 30) : match.end() + 30], reason


CHECKED = ("djqueue/", "example_project/", "requirements/", "run.py")
MESSAGES_ONLY = ("djqueue/engines/", "djqueue/outbox/", "djqueue/jobs/")
"""Docstrings and comments are still to be reworded there."""
NOT_YET = frozenset(
    {"djqueue/engines/redis/codec.py", "djqueue/jobs/compression.py", "djqueue/jobs/encoding.py"},
)
"""Files with messages that are still to be reworded."""


def main(root: Path) -> int:
    findings = 0
    for path in sorted({path for name in CHECKED for path in _files(root / name)}):
        name = path.relative_to(root).as_posix()
        if name in NOT_YET:
            if not list(find(path.read_text(), with_prose=False)):
                print(f"{name}: has no such wording any more; remove it from NOT_YET in .ci/english.py")
            continue
        for line, text, reason in find(path.read_text(), with_prose=not name.startswith(MESSAGES_ONLY)):
            findings += 1
            print(f"{name}:{line}: …{text}… {reason}")
    return int(findings > 0)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("*.py"))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
