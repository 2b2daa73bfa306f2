"""Two kinds of times. Inside of djqueue every time has a zone; what users see is of the kind that Django's fields have.

With ``USE_TZ = False`` that is a time without a zone, meant in ``TIME_ZONE``, whatever time zone is active.
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
    """Return a time with its zone."""
    return at if at is None or timezone.is_aware(at) else timezone.make_aware(at, timezone.get_default_timezone())


@overload
def as_django(at: datetime) -> datetime: ...
@overload
def as_django(at: None) -> None: ...
def as_django(at: datetime | None) -> datetime | None:
    """Return a time as a field of one of Django's models would have it."""
    if at is None or settings.USE_TZ:
        return at
    return timezone.make_naive(at, timezone.get_default_timezone()) if timezone.is_aware(at) else at
