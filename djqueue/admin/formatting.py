"""Durations, times and JSON in words."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from djqueue.jobs.states import JobState

NOTHING = "–"

STATE_LABELS = {
    JobState.SCHEDULED: _("scheduled"),
    JobState.AVAILABLE: _("available"),
    JobState.EXECUTING: _("executing"),
    JobState.RETRYABLE: _("retryable"),
    JobState.SUSPENDED: _("suspended"),
    JobState.COMPLETED: _("completed"),
    JobState.DISCARDED: _("discarded"),
    JobState.CANCELLED: _("cancelled"),
}

_MAX_JSON_CHARACTERS = 100_000
_MAX_LINE = 60
_MAX_BEGINNING = 160


def duration(delta: timedelta, *, units: int = 2) -> str:
    """Say a duration with two units at most, or with one. A negative one, of clocks that disagree, counts as none."""
    seconds = max(0.0, delta.total_seconds())
    if seconds < 0.9995:
        return gettext("%(number)d ms") % {"number": round(seconds * 1000)}
    if seconds < 9.95:
        return gettext("%(number).1f s") % {"number": seconds}
    whole = round(seconds)
    if whole < 60:
        return gettext("%(number)d s") % {"number": whole}
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        words = gettext("%(number)d min") % {"number": minutes}
        return (
            words + " " + gettext("%(number)d s") % {"number": rest} if rest and minutes < 10 and units > 1 else words
        )
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        words = gettext("%(number)d h") % {"number": hours}
        return words + " " + gettext("%(number)d min") % {"number": minutes} if minutes and units > 1 else words
    days, hours = divmod(hours, 24)
    words = ngettext("%(number)d day", "%(number)d days", days) % {"number": days}
    return words + " " + gettext("%(number)d h") % {"number": hours} if hours and days < 10 and units > 1 else words


def ago(at: datetime | None, now: datetime) -> str:
    """Say how long ago it was, with the exact time as a tooltip."""
    if at is None:
        return NOTHING
    if (passed := now - at) < timedelta(seconds=1):
        words = gettext("just now")
    else:
        words = gettext("%(duration)s ago") % {"duration": duration(passed, units=1)}
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), exact(at), words)


def exact(at: datetime) -> str:
    """Write a time to the millisecond in the viewer's time zone."""
    local = timezone.localtime(at) if timezone.is_aware(at) else at
    return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{local.microsecond // 1000:03d}" + local.strftime(" %Z").rstrip()


def parse_time(value: object) -> datetime | None:
    """Read a time out of a JSON column, where anything may stand."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def badge(state: str, label: object) -> SafeString:
    """Colour a state by a class; the colours stand in admin.css, so no style is inline."""
    return format_html('<span class="djq-badge djq-{}">{}</span>', state, label)


def task_name(path: str) -> SafeString:
    """Show a function's name before the module it lives in: columns are narrow and modules alike."""
    module, _dot, name = path.rpartition(".")
    parts = format_html_join(mark_safe("<wbr>"), "{}", ((part,) for part in re.split(r"(?<=\.)", module)))
    return format_html('<span class="djq-task">{}</span> <span class="djq-module">{}</span>', name, parts)


def state_badge(state: str) -> SafeString:
    try:
        known = JobState(state)
    except ValueError:
        return badge("unknown", state)
    return badge(known.value, STATE_LABELS[known])


def attempts(attempt: int, max_attempts: int) -> str:
    return gettext("%(attempt)d of %(max)d") % {"attempt": attempt, "max": max_attempts}


def short(worker: UUID) -> str:
    """Abbreviate a worker's id for a narrow column."""
    return f"{str(worker)[:8]}…"


def pretty(value: Any) -> str:
    """Write a value as JSON text, indented when it is long, and cut when it is very long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > _MAX_LINE:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if len(text) > _MAX_JSON_CHARACTERS:
        note = gettext("… cut here; %(count)s characters in all") % {"count": f"{len(text):,}"}
        text = f"{text[:_MAX_JSON_CHARACTERS]}\n{note}"
    return text


def arguments_line(args: str, kwargs: str) -> str:
    """Show the beginnings of arguments in one line."""
    if args.startswith('{"zlib"'):
        return gettext("compressed arguments")
    return _cut(" ".join(text for text in (args, kwargs) if text not in ("", "[]", "{}")))


def error_line(exception: object, message: object) -> str:
    """Show an error in one line: its class, without the module, and the first line of what it says."""
    kind = str(exception or "").rpartition(".")[2]
    first = str(message or "").strip().split("\n", 1)[0]
    return _cut(": ".join(part for part in (kind, first) if part))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_BEGINNING else f"{text[: _MAX_BEGINNING - 1]}…"
