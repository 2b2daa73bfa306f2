"""One connection of one thread to the server that holds the keys of a prefix.

redis-py opens the connection (URL, TLS, authentication, database). After that, hiredis packs the commands and parses the
responses directly, because redis-py's layers in between cost more than the server. Errors are djqueue's own exceptions.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hiredis
import msgpack
from redis.connection import AbstractConnection
from redis.exceptions import RedisError

from djqueue.adapters.redis import socket_of
from djqueue.engines.redis.denials import denied_command, denied_login
from djqueue.engines.redis.nodes import Nodes
from djqueue.engines.redis.scripts import script
from djqueue.exceptions import EngineRefused, EngineUnavailable

ANSWER_TIMEOUT_SECONDS = 30.0
_LOOK_AFTER_SECONDS = 0.05
"""A connection that was idle for this long is checked before it is used: the server may have closed it."""
_LARGEST_BYTES = 512 * 1024 * 1024
_REDIRECTIONS = 5
# Errors that may not occur later, or on another connection.
_UNAVAILABLE = (
    "LOADING", "BUSY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "UNKILLABLE", "CLUSTERDOWN", "TRYAGAIN",
    "ASK",
)  # fmt: skip
# Errors after which another connection may find a better server. READONLY: the primary was demoted.
_RECONNECT = ("READONLY", "MASTERDOWN", "CLUSTERDOWN")
Argument = bytes | str | int


class Client:
    """The loss of the connection raises ``EngineUnavailable``; the next command connects again."""

    protocol = 2

    def __init__(
        self,
        nodes: Nodes,
        prefix: str,
        *,
        name: str = "djqueue",
        answer_timeout_seconds: float = ANSWER_TIMEOUT_SECONDS,
    ) -> None:
        self.key = b"{%b}:" % prefix.encode()
        """The only key that scripts declare; a cluster finds the node by it. Scripts build all other keys from it."""
        self.name = name
        """The name of the next connection, as ``CLIENT LIST`` shows it."""
        self.prefix = prefix
        self._pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=False).pack  # Lua has only one string type
        self.nodes = nodes
        self._answer_timeout = answer_timeout_seconds
        self._connection: AbstractConnection | None = None
        self.socket: socket.socket | None = None
        self._answers: Any = None
        self._pid = 0
        self._used = 0.0
        self._has_arrived = False
        """Whether ``arrive.lua`` has run on this connection, which skips ids if this is not the server that gave the last ones."""

    def pack(self, value: Any) -> bytes:
        """Return a value as an argument of a script."""
        return self.pack_each([value])[0]

    def pack_each(self, values: Iterable[Any]) -> list[bytes]:
        """Return values as arguments of a script, or as parts of one."""
        try:
            return list(map(self._pack, values))
        except (UnicodeError, OverflowError, ValueError) as error:
            raise EngineRefused(f"Cannot encode a value for the server: {error}") from error

    def run(self, name: str, *args: Argument) -> Any:
        """Run a script and return its response."""
        [answer] = self._ask(packed(b"EVALSHA", script(name).sha, 1, self.key, *args))
        return self.run_all(name, [args])[0] if _is_unknown(answer) else self._checked(answer)

    def run_all(self, name: str, calls: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run a script several times with nothing in between, all or nothing, and return the responses."""
        wanted = script(name)
        command: tuple[bytes, bytes] = (b"EVALSHA", wanted.sha)
        while True:
            messages = [packed(*command, 1, self.key, *args) for args in calls]
            if len(messages) == 1:
                answers = self._ask(messages[0])
            else:
                together = b"".join([packed(b"MULTI"), *messages, packed(b"EXEC")])
                *queued, answers = self._ask(together, len(calls) + 2)
                if isinstance(answers, hiredis.ReplyError):
                    # The error of EXEC only says that an earlier command was refused.
                    self._checked(next((one for one in queued if isinstance(one, hiredis.ReplyError)), answers))
            if not _is_unknown(answers[0]):
                return [self._checked(answer) for answer in answers]
            # EVAL also loads the script into the server.
            command = (b"EVAL", wanted.text)

    def command(self, *args: Argument) -> Any:
        """Run one command and return its response."""
        return self.commands([args])[0]

    def commands(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run independent commands, sent together, and return their responses."""
        answers = self._ask(b"".join([packed(*args) for args in commands]), len(commands), is_script=False)
        return [self._checked(answer) for answer in answers]

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._connection is not None:
            connection, self._connection, self.socket, self._answers = self._connection, None, None, None
            connection.disconnect()

    def _ask(self, message: bytes, count: int = 1, *, is_script: bool = True) -> list[Any]:
        """Send a message and return its responses; follow the redirections of a cluster."""
        for _ in range(_REDIRECTIONS):
            try:
                self._send(message, is_script=is_script)
                answers = [self._receive() for _ in range(count)]
            except BaseException:
                # On any exception, such as a time limit or Ctrl-C: a late response must not be taken for that of the next message.
                self.close()
                raise
            for answer in answers:
                if isinstance(answer, hiredis.ReplyError) and str(answer).startswith("MOVED "):
                    self.nodes.move(str(answer).split(" ")[2])
                    self.close()
                    break
            else:
                return answers
        raise EngineUnavailable(f"Too many cluster redirections; the last was to {self.nodes}.")

    def _send(self, message: bytes, *, is_script: bool) -> None:
        if self._connection is not None and (
            self._pid != os.getpid() or self._has_ended() or (is_script and not self._has_arrived)
        ):
            self.close()
        for is_last in (self._connection is None, True):
            if self.socket is None:
                self._connect(is_script=is_script)
            assert self.socket is not None
            try:
                self.socket.sendall(message)
                return
            except OSError as error:
                # A message that was not sent completely was not executed, so it may be sent again on another connection.
                self.close()
                if is_last:
                    raise _undone(f"The server at {self.nodes} closed the connection: {error}") from error

    def _receive(self) -> Any:
        while (answer := self._answers.gets()) is False:
            self._feed()
        self._used = time.monotonic()
        return answer

    def _feed(self) -> None:
        assert self.socket is not None
        try:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionResetError("the connection was closed")
            self._answers.feed(data)
        except OSError as error:
            self.close()
            raise EngineUnavailable(f"The server at {self.nodes} did not answer: {error}") from error

    def _has_ended(self) -> bool:
        """Return whether the server has closed a connection that was idle for a while."""
        if time.monotonic() - self._used < _LOOK_AFTER_SECONDS or self.socket is None:
            return False
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    def _connect(self, *, is_script: bool) -> None:
        error: Exception | None = None
        for home in self.nodes.candidates():
            # Without CLIENT SETINFO, which would take another round trip each. Without callbacks, because pushes are read here.
            connection = self.nodes.connection(
                home,
                client_name=self.name,
                protocol=self.protocol,
                socket_timeout=self._answer_timeout,
                driver_info=None,
            )
            try:
                connection.connect()
                break
            except (RedisError, OSError) as refusal:
                connection.disconnect()
                error = error or refusal
        else:
            if error is not None and (denial := denied_login(error, self.nodes, self.key)) is not None:
                raise denial from error
            raise _undone(f"The server at {self.nodes} cannot be reached: {error}") from error
        self._connection = connection
        self.socket = socket_of(connection)
        self._answers = hiredis.Reader()
        self._pid = os.getpid()
        if not self.nodes.is_known:
            self.nodes.learn(self._first(b"CLUSTER", b"SLOTS"))
        answer = self._first(b"EVAL", script("arrive").text, 1, self.key)
        self._has_arrived = not isinstance(answer, hiredis.ReplyError)
        # In a cluster this may be the wrong node; the command that follows is redirected too. A server that cannot run
        # scripts now may still be inspected: then no script is sent on this connection.
        if is_script and not self._has_arrived and not str(answer).startswith("MOVED "):
            self._checked(answer)

    def _first(self, *args: Argument) -> Any:
        """Send a command on a new connection and return the first response, even if it is an error or a push message."""
        assert self.socket is not None
        try:
            self.socket.sendall(packed(*args))
        except OSError as error:
            self.close()
            raise EngineUnavailable(f"The server at {self.nodes} closed the connection: {error}") from error
        return Client._receive(self)

    def _checked(self, answer: Any) -> Any:
        if not isinstance(answer, hiredis.ReplyError):
            return answer
        text = str(answer)
        word = text.split(" ", 1)[0]
        if word in _RECONNECT:
            self.close()
        if word == "OOM":
            raise _undone(
                f"The server at {self.nodes} is out of memory and accepts no new jobs. Delete finished jobs (manage.py prunejobs),"
                " raise maxmemory, or wait until workers have run the waiting jobs."
            )
        if word == "READONLY":
            raise _undone(
                f"The server at {self.nodes} is a read-only replica. Point the URL at the primary, or at a name"
                f" or proxy that follows it. ({text})"
            )
        if (denial := denied_command(text, self.nodes, self.key)) is not None:
            raise denial
        if word in _UNAVAILABLE:
            raise _undone(f"The server at {self.nodes} is temporarily unavailable: {text}")
        raise EngineRefused(f"The server at {self.nodes} rejected a command: {text}")


def _undone(text: str) -> EngineUnavailable:
    """Return the error for a command that was not sent, or was refused before anything was done."""
    absence = EngineUnavailable(text)
    absence.is_undone = True
    return absence


def _is_unknown(answer: Any) -> bool:
    """Return whether the server does not have the script in its cache, so that nothing was done."""
    return isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOSCRIPT")


def packed(*args: Argument) -> bytes:
    """Return a command in the wire format."""
    try:
        packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # typed for one argument, but accepts any number
    except UnicodeError as error:
        raise EngineRefused(f"Cannot encode a text for the server: {error}") from error
    if len(packed) > _LARGEST_BYTES and any(len(arg) > _LARGEST_BYTES for arg in args if not isinstance(arg, int)):
        raise EngineRefused("Cannot store a value larger than 512 MB.")
    return packed
