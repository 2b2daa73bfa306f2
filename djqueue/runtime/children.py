"""A worker process as its supervisor sees it."""

from __future__ import annotations

import socket
import subprocess
import time
from dataclasses import dataclass, field
from uuid import UUID

from djqueue.runtime.claims import ClaimBlock


@dataclass(slots=True, kw_only=True, eq=False)
class Child:
    """One worker process."""

    id: UUID
    name: str
    process: subprocess.Popen[bytes]
    control: socket.socket
    claims: ClaimBlock
    started: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    is_announced: bool = False
    is_working: bool = False
    overdue: dict[int, int] = field(default_factory=dict)
    """Job id → claim of what it was killed for."""
