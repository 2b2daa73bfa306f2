"""Delays that no store can hold, refused or taken alike."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from djqueue import compat
from djqueue.jobs.states import JobState
from tests.app import tasks
from tests.backlog import stored
from tests.runtime.conftest import store  # noqa: F401  a fixture

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


@pytest.mark.parametrize("option", ["run_after", "max_age"])
@pytest.mark.parametrize("far", [timedelta.min, timedelta.max])
def test_t33_a_duration_beyond_any_calendar_is_refused_before_anything_is_stored(option: str, far: timedelta) -> None:
    with pytest.raises(compat.InvalidTask):
        tasks.noop.using(**{option: far})


@pytest.mark.parametrize("past", [timedelta(0), timedelta(days=-36_000)])
def test_t33_a_delay_that_is_over_already_is_none(past: timedelta) -> None:
    result: Any = tasks.noop.using(run_after=past).enqueue()

    assert stored(result).state == JobState.AVAILABLE
