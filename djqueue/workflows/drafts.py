"""What a plan notes of a job before the dependencies of all jobs are final."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from djqueue.jobs.flows import DependencyRule, Upstream, UpstreamKind
from djqueue.workflows.canvas import OnFailure, Signature
from djqueue.workflows.result import Path

if TYPE_CHECKING:
    from djqueue.workflows.ends import Ends


class Wait(NamedTuple):
    """A dependency on something outside of a canvas."""

    on: Ends | Upstream
    on_failure: OnFailure


class Before(NamedTuple):
    """What runs before an item of a chain."""

    ends: Ends
    on_failure: OnFailure


class Input(NamedTuple):
    """Where a result goes."""

    path: Path
    ends: Ends
    """Places, or for a stored job the negative of its id."""
    is_dropped: bool


@dataclass(slots=True)
class Draft:
    """A job before its upstreams are final."""

    signature: Signature
    flow: int | None
    """The flow that counts it. None: it runs only after a failure, and where it is not needed, it ends as cancelled. Counted, it
    would make a workflow that completed look like one that failed, and let ``on_failure="cancel"`` cancel the rest."""
    prefix: str
    """Of its name, if it needs one."""
    name: str = ""
    args: Any = ()
    kwargs: Any = field(default_factory=dict)
    upstreams: dict[tuple[UpstreamKind, int], DependencyRule] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
