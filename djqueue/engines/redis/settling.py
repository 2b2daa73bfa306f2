"""Let the ends of jobs have the rest of their effect on the jobs that wait for them."""

from __future__ import annotations

from datetime import datetime

from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import clock
from djqueue.jobs.flows import Settled

_AT_ONCE = 500
"""How many jobs one run of the script looks at: some milliseconds."""


def settle(client: Client, now: datetime | None, limit: int = 10 * _AT_ONCE) -> Settled:
    """The stager calls this again while there is more."""
    begun = 0
    for _ in range(-(-limit // _AT_ONCE)):
        count, is_left = client.run("settle", clock(now), min(limit, _AT_ONCE))
        begun += count
        if not is_left:
            return Settled(begun)
    return Settled(begun, is_full=True)
