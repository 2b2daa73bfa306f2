"""Convert between two kinds of times. Inside djqueue, times are aware; users get the kind that Django's fields return.

With ``USE_TZ = False`` that is a naive time in ``TIME_ZONE``, whatever time zone is active.
"""

from __future__ import annotations

from datetime import datetime
from typing import overload

from django.conf import settings
from django.utils import timezone


@overload
def as_aware(at: datetime) -> datetime: ...
@overload
def as_aware(at: None) -> None: ...
def as_aware(at: datetime | None) -> datetime | None:
    """Return an aware time."""
    return at if at is None or timezone.is_aware(at) else timezone.make_aware(at, timezone.get_default_timezone())


@overload
def as_django(at: datetime) -> datetime: ...
@overload
def as_django(at: None) -> None: ...
def as_django(at: datetime | None) -> datetime | None:
    """Return a time as a field of a Django model would return it."""
    if at is None or settings.USE_TZ:
        return at
    return timezone.make_naive(at, timezone.get_default_timezone()) if timezone.is_aware(at) else at
