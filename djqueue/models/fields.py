"""Fields that several tables use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import models

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""``attempted_at`` of a job that was never claimed: as wide as the value with which the claim replaces it."""


class Moment(models.DateTimeField):  # type: ignore[type-arg]
    """A time. Times that Python cannot represent, such as infinity, are read as the earliest or latest that it can.

    djqueue never writes such a time, but the admin must be able to show a row that was edited by hand.
    """

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        return (
            f"CASE WHEN {sql} IS NOT NULL THEN GREATEST(LEAST({sql}, TIMESTAMPTZ '9999-01-01 00:00:00+00'),"
            " TIMESTAMPTZ '0001-01-02 00:00:00+00') END"
        ), [*params, *params]

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs
