"""Carry context from the enqueue of a job to its run: language, time zone, and values that a project registers.

Register a carrier for a value in a context variable, such as a request id, a trace or a tenant::

    from djqueue import propagation

    propagation.register("request_id", capture=lambda: request_id.get(None), restore=request_id_set)

``capture()`` returns a value that JSON can represent, or None to carry nothing; ``restore(value)`` returns a context
manager in which the job runs. Language and time zone are carried when they differ from the project's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, tzinfo
from datetime import timezone as fixed_timezone
from typing import Any, NamedTuple

from django.conf import settings
from django.utils import timezone, translation

from djqueue import hooks
from djqueue.jobs.encoding import encode_result

KEY = "context"
"""The key of the carried values in a job's meta."""
MAX_BYTES = 10_000
"""Maximum size of one value as JSON."""


class Carrier(NamedTuple):
    capture: Callable[[], Any]
    restore: Callable[[Any], AbstractContextManager[Any]]


_carriers: dict[str, Carrier] = {}


def register(name: str, *, capture: Callable[[], Any], restore: Callable[[Any], AbstractContextManager[Any]]) -> None:
    """Carry a value with every job enqueued from now on. A second call with the same name replaces the carrier."""
    _carriers[name] = Carrier(capture, restore)


def unregister(name: str) -> None:
    """Remove a carrier. Jobs that are already stored keep their value, but run without it."""
    _carriers.pop(name, None)


def capture() -> str:
    """Return a new job's meta as JSON text. A carrier that fails is logged and left out, so that the job is still enqueued."""
    values: list[str] = []
    for name, carrier in _carriers.items():
        try:
            value = carrier.capture()
            if value is not None:
                values.append(f"{json.dumps(name)}:{encode_result(value, MAX_BYTES)}")
        except BaseException as error:
            if hooks.must_pass(error):
                raise
            hooks.report(error, "The carrier %r failed to capture its value; the job travels without it.", name)
    return f'{{"{KEY}":{{{",".join(values)}}}}}' if values else "{}"


@contextmanager
def restored(meta: str) -> Iterator[None]:
    """Run a block with the values that the job carries. A carrier cannot change the outcome of the block."""
    entered: list[tuple[str, AbstractContextManager[Any]]] = []
    for name, value in _values(meta).items():
        if (carrier := _carriers.get(name)) is None:
            continue  # carried by another release of the project, which has other carriers
        try:
            manager = carrier.restore(value)
            manager.__enter__()
        except BaseException as error:
            hooks.report(error, "The carrier %r failed to restore its value; the job runs without it.", name)
        else:
            entered.append((name, manager))
    try:
        yield
    finally:
        # Not an ExitStack: a carrier whose __exit__ returns True would turn a failed task into a completed one.
        for name, manager in reversed(entered):
            failure = sys.exc_info()
            try:
                manager.__exit__(*failure)
            except BaseException as error:
                if error is not failure[1]:
                    hooks.report(error, "The carrier %r failed to reset its value after the job.", name)


def _values(meta: str) -> dict[str, Any]:
    values = json.loads(meta).get(KEY) if KEY in meta else None
    return values if isinstance(values, dict) else {}


def _language() -> str | None:
    language = translation.get_language()
    return language if language != settings.LANGUAGE_CODE else None


def _time_zone() -> str | int | None:
    """Return the key of the current time zone, or its offset from UTC in seconds if it has no key. None: the default one."""
    zone, default = timezone.get_current_timezone(), timezone.get_default_timezone()
    if zone is default:
        return None  # The usual case. Reading the name of a time zone takes longer than encoding the arguments.
    if key := _zone_key(zone):
        return key if key != _zone_key(default) else None
    # A fixed offset has a name (+0300, UTC+03:00), but no time zone can be found by it.
    offset = zone.utcoffset(datetime.now())
    return None if offset is None else round(offset.total_seconds())


def _zone_key(zone: tzinfo) -> str | None:
    for name in ("key", "zone"):  # zoneinfo, pytz
        if isinstance(key := getattr(zone, name, None), str):
            return key
    return None


def _in_time_zone(value: str | int) -> AbstractContextManager[Any]:
    if isinstance(value, str):
        return timezone.override(value)
    minutes, seconds = divmod(value, 60)
    if seconds:
        return timezone.override(fixed_timezone(timedelta(seconds=value)))
    return timezone.override(timezone.get_fixed_timezone(minutes))


register("language", capture=_language, restore=translation.override)
register("time_zone", capture=_time_zone, restore=_in_time_zone)
