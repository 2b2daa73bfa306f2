"""Validate job ids and queue names."""

from __future__ import annotations

import re
from typing import TypeGuard

MAX_JOB_ID = 2**63 - 1

_QUEUE_NAME = re.compile(r"[\w.:-]{1,128}", re.ASCII)


def job_id(text: object) -> int | None:
    """Return a job id, written in ASCII digits, as a number, or None if it cannot be a job id."""
    text = str(text)
    if not (len(text) < 20 and text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= MAX_JOB_ID else None


def is_queue_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and _QUEUE_NAME.fullmatch(name) is not None


def invalid_queue_name(name: object) -> str:
    """Return the message for a name for which ``is_queue_name`` is false."""
    return f"Invalid queue name {name!r}: use 1–128 letters, digits, '_', '.', ':' or '-'."
