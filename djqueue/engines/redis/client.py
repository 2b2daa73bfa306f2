"""One connection of one thread to the server that holds the keys of a prefix.

redis-py connects (url, TLS, authentication, database); from there on commands are packed and answers parsed by hiredis
directly, for the layers in between cost more than the server. Errors are told in the words of the seam.
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
"""A connection that rested so long is looked at before it is used: the server may have closed it."""
_LARGEST_BYTES = 512 * 1024 * 1024
_REDIRECTIONS = 5
# What will be different later, or on another connection.
_UNAVAILABLE = (
    "LOADING", "BUSY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "UNKILLABLE", "CLUSTERDOWN", "TRYAGAIN",
    "ASK",
)  # fmt: skip
# After these another connection may find a better server. READONLY: a primary that was demoted.
_RECONNECT = ("READONLY", "MASTERDOWN", "CLUSTERDOWN")
Argument = bytes | str | int


class Client:
    """A lost connection raises ``EngineUnavailable``; the next command connects again."""

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
        """The one key that is named to the server: in a cluster it says where to go. The scripts build the others from it."""
        self.name = name
        """What the server calls the next connection."""
        self.prefix = prefix
        self._pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=False).pack  # Lua knows one kind of string
        self.nodes = nodes
        self._answer_timeout = answer_timeout_seconds
        self._connection: AbstractConnection | None = None
        self.socket: socket.socket | None = None
        self._answers: Any = None
        self._pid = 0
        self._used = 0.0
        self._has_arrived = False
        """Whether the server has been asked if it is the one that gave the last ids; see ``arrive.lua``."""

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
        """Run a script and return its answer."""
        [answer] = self._ask(packed(b"EVALSHA", script(name).sha, 1, self.key, *args))
        return self.run_all(name, [args])[0] if _is_unknown(answer) else self._checked(answer)

    def run_all(self, name: str, calls: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run a script several times, with nothing in between, and return the answers: all of it or nothing."""
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
                    # It only says that one of the commands before it was refused.
                    self._checked(next((one for one in queued if isinstance(one, hiredis.ReplyError)), answers))
            if not _is_unknown(answers[0]):
                return [self._checked(answer) for answer in answers]
            # This shows it to the server, too.
            command = (b"EVAL", wanted.text)

    def command(self, *args: Argument) -> Any:
        """Run one command and return its answer."""
        return self.commands([args])[0]

    def commands(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run commands that have nothing to do with each other, sent together, and return their answers."""
        answers = self._ask(b"".join([packed(*args) for args in commands]), len(commands), is_script=False)
        return [self._checked(answer) for answer in answers]

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._connection is not None:
            connection, self._connection, self.socket, self._answers = self._connection, None, None, None
            connection.disconnect()

    def _ask(self, message: bytes, count: int = 1, *, is_script: bool = True) -> list[Any]:
        """Send a message and return its answers; go where a cluster says that the keys are."""
        for _ in range(_REDIRECTIONS):
            try:
                self._send(message, is_script=is_script)
                answers = [self._receive() for _ in range(count)]
            except BaseException:
                # Whatever it was, a time limit or Ctrl-C: an answer that is still to come must not be taken for the next one's.
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
                # What did not leave completely was not done: it may be sent again on another connection.
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
        """Say whether the server has closed a connection that was not used for a while."""
        if time.monotonic() - self._used < _LOOK_AFTER_SECONDS or self.socket is None:
            return False
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    def _connect(self, *, is_script: bool) -> None:
        error: Exception | None = None
        for home in self.nodes.candidates():
            # No word about the library: each would be a message more. No callbacks either: what arrives is read here.
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
        # In a cluster this may be the wrong node. The command that follows is told so too, and goes to the right one. And
        # somebody may want to look at a server that takes no scripts now; none is sent to it on this connection.
        if is_script and not self._has_arrived and not str(answer).startswith("MOVED "):
            self._checked(answer)

    def _first(self, *args: Argument) -> Any:
        """Ask something on a connection that has just been made, and return what comes first, be it an error or a message."""
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
    """Return the error of a command that has not left, or was refused before anything was done."""
    absence = EngineUnavailable(text)
    absence.is_undone = True
    return absence


def _is_unknown(answer: Any) -> bool:
    """Say whether the server does not know the script, or was told to forget it, and so has done nothing."""
    return isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOSCRIPT")


def packed(*args: Argument) -> bytes:
    """Return a command as it is sent."""
    try:
        packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # they say one argument, and take any number
    except UnicodeError as error:
        raise EngineRefused(f"Cannot encode a text for the server: {error}") from error
    if len(packed) > _LARGEST_BYTES and any(len(arg) > _LARGEST_BYTES for arg in args if not isinstance(arg, int)):
        raise EngineRefused("Cannot store a value larger than 512 MB.")
    return packed
