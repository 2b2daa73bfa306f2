from __future__ import annotations

import pytest

from djqueue import reminders
from djqueue.reminders import Reminder


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = [100.0]
    monkeypatch.setattr(reminders.time, "monotonic", lambda: now[0])
    return now


def told(reminder, clock, seconds, what="away"):
    """The seconds in which one who asks each second is told to speak."""
    start = clock[0]
    times = []
    for second in range(seconds):
        clock[0] = start + second
        if reminder.is_due(what):
            times.append(second)
    return times


def test_what_stays_wrong_is_told_at_once_and_then_with_growing_pauses_up_to_a_minute(clock):
    assert told(Reminder(), clock, 250) == [0, 2, 6, 14, 30, 62, 122, 182, 242]


def test_what_is_new_is_told_at_once(clock):
    reminder = Reminder()
    told(reminder, clock, 20)

    assert told(reminder, clock, 2, "full") == [0]


def test_what_comes_again_after_it_was_over_is_told_at_once(clock):
    reminder = Reminder()
    told(reminder, clock, 20)
    reminder.forget()

    assert told(reminder, clock, 2) == [0]
