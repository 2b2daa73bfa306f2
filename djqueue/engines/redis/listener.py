"""Sleep until a job becomes available.

The mark of a sleeper is a key that expires. The script that makes a job available also checks for the mark; if there is one,
it removes the mark and sends one message, which wakes all listeners; see ``wake`` in ``lua/lib.lua``. So a mark need not be
withdrawn: one that outlives its sleep costs an unnecessary message.
"""

from __future__ import annotations

import logging
import math
import selectors
import time
from collections.abc import Collection, Sequence
from typing import Any

import hiredis

from djqueue.engines.closing import Closing
from djqueue.engines.redis.client import Client
from djqueue.engines.redis.nodes import Nodes
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.interrupts import InterruptPipe
from djqueue.reminders import Reminder

logger = logging.getLogger("djqueue.listener")

_MARK_MILLISECONDS = 30_000
"""How long a mark lasts before it expires."""
_RENEW_SECONDS = 10.0
"""How old a mark that is still needed may be before it is written again."""
_ANSWER_TIMEOUT_SECONDS = 6.0
"""Short, because its commands do almost no work and the worker's producer thread waits for them."""
_RECONNECT_SECONDS = 1.0
_CANCEL = "cancel:"


class RedisListener(Closing):
    """One connection, which receives messages and writes marks."""

    def __init__(self, nodes: Nodes, prefix: str) -> None:
        self._ears = _Ears(nodes, prefix, name="djqueue:listener", answer_timeout_seconds=_ANSWER_TIMEOUT_SECONDS)
        self._connect_after = 0.0
        self._reminder = Reminder()
        self._marked: dict[str, float] = {}
        """Name → monotonic time at which its current mark was written."""
        self._names: set[str] = set()
        """All names that were ever marked here. Messages about other names are for other sleepers."""
        self._woken: set[str] = set()
        self._pipe = InterruptPipe()

    def mark(self, queues: Collection[str]) -> bool:
        """A mark stands until its name is received: the script that wakes a name removes its mark and sends the message."""
        self._names.update(queues)
        now = time.monotonic()
        missing = [queue for queue in queues if now - self._marked.get(queue, -math.inf) > _RENEW_SECONDS]
        # Where wake-ups are not possible, the worker polls.
        return not missing or not self._mark(missing)

    def unmark(self, queues: Collection[str] | None = None) -> None:
        """The marks are left to expire; a wake-up that they cause is harmless."""
        for queue in list(self._marked) if queues is None else queues:
            self._marked.pop(queue, None)

    def wait(self, timeout: float) -> set[str]:
        """Return at once after the connection was lost, because a message may have been lost with it."""
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
        self._pipe.interrupt()

    def close(self) -> None:
        self._ears.close()
        self._pipe.close()

    def _mark(self, names: Sequence[str]) -> bool:
        """Write marks; return whether that succeeded."""
        # Twice: the end of a connection is noticed only when it is used.
        for _ in range(2):
            was_connected = self._ears.socket is not None
            if not was_connected and time.monotonic() < self._connect_after:
                return False
            connections = self._ears.connections
            try:
                self._ears.run("mark", _MARK_MILLISECONDS, *names)
                now = time.monotonic()
                if self._ears.connections != connections:  # wake-ups sent before this connection are lost
                    self._woken.update(self._marked)
                    self._marked.clear()
                self._marked.update(dict.fromkeys(names, now))
                self._reminder.forget()
                return True
            except (EngineUnavailable, EngineRefused) as error:
                self._lose(error, was_connected=was_connected)
        return False

    def _sleep(self, timeout: float) -> bool:
        """Wait for a message or an interruption, and process the messages; return whether it was interrupted."""
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
            self._marked.pop(name, None)  # the script that sent the message has removed the mark
            if name in self._names or name.startswith(_CANCEL):
                self._woken.add(name)

    def _lose(self, error: Exception, *, was_connected: bool) -> None:
        if was_connected or self._reminder.is_due(str(error)):
            logger.warning("Lost the connection for wake-ups; polling until it is restored. (%s)", error)
        # No wake-ups have arrived since the loss.
        self._woken.update(self._marked)
        self._marked.clear()
        # Reconnect at once after a loss, but only after a pause if connecting failed.
        self._connect_after = time.monotonic() + (0.0 if was_connected else _RECONNECT_SECONDS)
        self._ears.close()


class _Ears(Client):
    """A connection that is subscribed to wake-ups and can still run commands: RESP 3 separates messages from responses."""

    protocol = 3

    def __init__(self, nodes: Nodes, prefix: str, **options: Any) -> None:
        super().__init__(nodes, prefix, **options)
        self.heard: list[str] = []
        self.connections = 0
        """The number of connections so far. A message that was sent between two of them is lost."""

    def hear(self) -> None:
        """Read what has arrived on the socket."""
        self._feed()
        self.overhear()

    def overhear(self) -> None:
        """Process messages that arrived behind the last response: they are buffered here, so the socket is not readable."""
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
        return False  # readable data is a message, not the end of the connection

    def _note(self, answer: Any) -> None:
        if isinstance(answer, list) and answer[0] == b"message":
            self.heard.append(answer[2].decode(errors="replace"))
