from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from djqueue.runtime.claims import CAPACITY, ClaimBlock


@pytest.fixture
def block() -> Iterator[ClaimBlock]:
    block = ClaimBlock.create()
    yield block
    block.close()


def test_the_other_side_sees_what_began_and_what_did_not(block: ClaimBlock) -> None:
    other = ClaimBlock(os.dup(block.fd))
    first = block.hold(11, 3)
    block.hold(12, 1)
    released = block.hold(13, 1)

    block.begin(first, None)
    block.begin(released, None)
    block.release(released)

    assert other.begun() == {11: 3}
    assert block.held == 2
    other.close()


def test_what_is_overdue_is_seen_from_outside(block: ClaimBlock) -> None:
    now = time.monotonic()
    block.begin(block.hold(1, 1), now - 60)
    block.begin(block.hold(2, 1), now + 60)
    block.begin(block.hold(3, 1), None)

    assert block.overdue(40) == {1: 1}


def test_a_place_is_used_again_without_its_old_deadline(block: ClaimBlock) -> None:
    place = block.hold(1, 1)
    block.begin(place, time.monotonic() - 100)
    block.release(place)

    again = block.hold(2, 5)
    block.begin(again, None)

    assert again == place
    assert block.overdue(0) == {}
    assert block.begun() == {2: 5}


def test_every_place_can_be_held_at_once(block: ClaimBlock) -> None:
    for number in range(CAPACITY):
        block.begin(block.hold(number, 1), None)

    assert block.room == 0
    assert len(block.begun()) == CAPACITY


def test_the_age_of_the_last_beat_is_known_to_the_worker(block: ClaimBlock) -> None:
    assert block.seconds_since_beat() > 60  # never

    block.record_beat()

    assert block.seconds_since_beat() < 5


def test_a_beat_that_comes_back_after_the_block_was_closed_is_of_no_consequence() -> None:
    block = ClaimBlock.create()
    block.close()

    block.record_beat()


def test_t65_a_worker_has_left_in_order_only_if_it_says_so_and_holds_nothing(block: ClaimBlock) -> None:
    place = block.hold(1, 1)
    assert block.end == 0

    block.leave(2)
    assert block.end == 0

    block.release(place)
    assert block.end == 2
