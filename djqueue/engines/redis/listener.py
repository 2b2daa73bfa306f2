"""Sleep until somebody makes a job available.

The mark of sleep is a key with an end. Whoever makes a job available looks for it in the same script, and if it is there sends
one message, which wakes all who listen, and removes it; see ``wake`` in ``lua/lib.lua``. So a mark need not be taken back: one
that outlives its sleep costs a message that nobody needed.
"""

from __future__ import annotations

import logging
import math
import selectors
import time
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any, Self

import hiredis

from djqueue.engines.redis.client import Client
from djqueue.engines.redis.nodes import Nodes
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.interrupts import InterruptPipe
from djqueue.reminders import Reminder

logger = logging.getLogger("djqueue.listener")

_MARK_MILLISECONDS = 30_000
"""How long a mark lasts."""
_RENEW_SECONDS = 10.0
"""After so long a mark that is still needed is written again."""
_ANSWER_TIMEOUT_SECONDS = 6.0
"""Nothing that is asked here takes any time, and the producer waits for it."""
_RECONNECT_SECONDS = 1.0
_CANCEL = "cancel:"


class RedisListener:
    """One connection, on which it hears messages and writes marks."""

    def __init__(self, nodes: Nodes, prefix: str) -> None:
        self._ears = _Ears(nodes, prefix, name="djqueue:listener", answer_timeout_seconds=_ANSWER_TIMEOUT_SECONDS)
        self._connect_after = 0.0
        self._reminder = Reminder()
        self._marked: dict[str, float] = {}
        """When each mark that stands was written."""
        self._names: set[str] = set()
        """What was ever marked here. Messages about other names are for other sleepers."""
        self._woken: set[str] = set()
        self._pipe = InterruptPipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def mark(self, queues: Collection[str]) -> bool:
        """Say that somebody sleeps on these queues; return whether all of these marks stood already.

        One stands until its name is heard: whoever calls it removes the mark, and the message is on its way to us.
        """
        self._names.update(queues)
        now = time.monotonic()
        missing = [queue for queue in queues if now - self._marked.get(queue, -math.inf) > _RENEW_SECONDS]
        # Where nobody can be told of anything, jobs are polled for.
        return not missing or not self._mark(missing)

    def unmark(self, queues: Collection[str] | None = None) -> None:
        """Say that nobody sleeps on these queues here any more, or on none: the marks end by themselves."""
        for queue in list(self._marked) if queues is None else queues:
            self._marked.pop(queue, None)

    def wait(self, timeout: float) -> set[str]:
        """Sleep until woken, interrupted or ``timeout`` seconds passed; return the names that were called.

        After a lost connection at once, for a message may have been lost with it.
        """
        end = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            renew_at = min(self._marked.values(), default=math.inf) + _RENEW_SECONDS
            if renew_at <= now:
                self.mark(list(self._marked))
            was_connected = self._ears.socket is not None
            is_interrupted = self._sleep(max(0.0, min(end, renew_at) - now))
            is_lost = was_connected and self._ears.socket is None
            if self._woken or is_interrupted or is_lost or time.monotonic() >= end:
                woken, self._woken = self._woken, set()
                return woken

    def interrupt(self) -> None:
        """End the current or next ``wait``; for other threads and signal handlers."""
        self._pipe.interrupt()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._ears.close()
        self._pipe.close()

    def _mark(self, names: Sequence[str]) -> bool:
        """Write marks; return whether that was possible."""
        # Twice: a connection that has ended meanwhile is noticed only when it is used.
        for _ in range(2):
            was_connected = self._ears.socket is not None
            if not was_connected and time.monotonic() < self._connect_after:
                return False
            connections = self._ears.connections
            try:
                self._ears.run("mark", _MARK_MILLISECONDS, *names)
                now = time.monotonic()
                if self._ears.connections != connections:  # nobody has told us of what was called before this one
                    self._woken.update(self._marked)
                    self._marked.clear()
                self._marked.update(dict.fromkeys(names, now))
                self._reminder.forget()
                return True
            except (EngineUnavailable, EngineRefused) as error:
                self._lose(error, was_connected=was_connected)
        return False

    def _sleep(self, timeout: float) -> bool:
        """Wait for a message or an interruption, and take what has come; return whether it was an interruption."""
        self._take()
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe.reader, selectors.EVENT_READ)
            if self._ears.socket is not None:
                selector.register(self._ears.socket, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(0 if self._woken else timeout)}
        if ready - {self._pipe.reader}:
            try:
                self._ears.hear()
            except EngineUnavailable as error:
                self._lose(error, was_connected=True)
            self._take()
        is_interrupted = self._pipe.reader in ready
        if is_interrupted:
            self._pipe.clear()
        return is_interrupted

    def _take(self) -> None:
        self._ears.overhear()
        while self._ears.heard:
            name = self._ears.heard.pop()
            self._marked.pop(name, None)  # whoever called it has removed the mark
            if name in self._names or name.startswith(_CANCEL):
                self._woken.add(name)

    def _lose(self, error: Exception, *, was_connected: bool) -> None:
        if was_connected or self._reminder.is_due(str(error)):
            logger.warning("Lost the connection for wake-ups; polling until it is restored. (%s)", error)
        # Nobody has told us of anything since.
        self._woken.update(self._marked)
        self._marked.clear()
        # At once after a loss, with a pause after a failure to connect.
        self._connect_after = time.monotonic() + (0.0 if was_connected else _RECONNECT_SECONDS)
        self._ears.close()


class _Ears(Client):
    """A connection that is subscribed to the wake-ups, and still takes commands: messages come apart from answers in RESP 3."""

    protocol = 3

    def __init__(self, nodes: Nodes, prefix: str, **options: Any) -> None:
        super().__init__(nodes, prefix, **options)
        self.heard: list[str] = []
        self.connections = 0
        """How many there were: a message that was sent between two of them is lost."""

    def hear(self) -> None:
        """Take in what has arrived."""
        self._feed()
        self.overhear()

    def overhear(self) -> None:
        """Take in what arrived along with the last answer, behind it: the socket has nothing more to tell of that."""
        while self._answers is not None and (answer := self._answers.gets()) is not False:
            self._note(answer)

    def _receive(self) -> Any:
        while isinstance(answer := super()._receive(), hiredis.PushNotification):
            self._note(answer)
        return answer

    def _connect(self, *, is_script: bool) -> None:
        super()._connect(is_script=is_script)
        answer = self._first(b"SUBSCRIBE", self.key + b"wake")
        if isinstance(answer, hiredis.ReplyError):
            self.close()
            self._checked(answer)
        self.connections += 1

    def _has_ended(self) -> bool:
        return False  # what can be read here is a message

    def _note(self, answer: Any) -> None:
        if isinstance(answer, list) and answer[0] == b"message":
            self.heard.append(answer[2].decode(errors="replace"))
