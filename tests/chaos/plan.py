"""What happens when, from nothing but the seed."""

from __future__ import annotations

import random
from typing import NamedTuple

SUPERVISORS = 3
PROCESSES = 2

_PROCESSES = {
    "kill child": 6,
    "kill supervisor": 2,
    "kill both": 2,
    "term child": 2,
    "term supervisor": 2,
    "stop child": 3,
    "stop supervisor": 3,
    "stop both": 2,
}
_CONNECTIONS = {"terminate some": 4, "terminate all": 2}
WEIGHTS: dict[str, dict[str, int]] = {
    "postgres": {**_PROCESSES, **_CONNECTIONS, "crash": 2, "away": 1, "refuse writes": 1},
    "redis": {
        **_PROCESSES,
        **_CONNECTIONS,
        "restart": 2,
        "crash": 2,
        "power cut": 2,
        "away": 1,
        "refuse writes": 1,
        "refuse full": 1,
        "flush scripts": 3,
    },
}
"""How often what happens, by the kind of store."""


class Act(NamedTuple):
    at: float
    """Seconds after the start."""
    what: str
    supervisor: int = 0
    child: int = 0
    seconds: float = 0.0
    """How long it lasts: until SIGCONT, the return of the server, the end of a spell, the start of a successor."""

    def __str__(self) -> str:
        where = f" {self.supervisor}" if self.what.split()[-1] in ("child", "supervisor", "both") else ""
        where += f".{self.child}" if self.what.endswith("child") else ""
        return f"{self.at:7.2f} s  {self.what}{where}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


def make(seed: int, seconds: float, store: str = "postgres") -> list[Act]:
    """Plan acts for so many seconds: now and then in a burst, so that one fault meets another."""
    chance = random.Random(seed)
    weights = WEIGHTS[store]
    acts = []
    at = 6.0
    while at < seconds:
        [what] = chance.choices(list(weights), list(weights.values()))
        length = {
            "stop": chance.uniform(1, 20),
            "away": chance.uniform(3, 15),
            "refuse": chance.uniform(3, 12),
        }.get(what.split()[0], 0.0)
        if what in ("kill supervisor", "kill both", "term supervisor"):
            length = chance.uniform(0, 6)
        acts.append(Act(at, what, chance.randrange(SUPERVISORS), chance.randrange(PROCESSES), length))
        at += chance.uniform(0, 0.5) if chance.random() < 0.25 else chance.uniform(1.5, 6)
    return acts
