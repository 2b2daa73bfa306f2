"""Undocumented parts of Python's standard library."""

from __future__ import annotations

import atexit
import json
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures.thread import _worker as _pool_thread
from contextlib import suppress
from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]
from types import FrameType
from typing import Any


def interpreter_flags() -> list[str]:
    """Return the options (``-W``, ``-X``, ``-O`` and so on) that start an interpreter like this one."""
    flags: list[str] = _args_from_interpreter_flags()
    return flags


def run_exit_hooks() -> None:
    """Wait for non-daemon threads and run the ``atexit`` hooks, as the interpreter does at its end."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def thread_frames() -> Mapping[int, FrameType]:
    """Return the innermost frame of every thread by the thread's identifier."""
    return sys._current_frames()


def leave_thread_pool() -> None:
    """Let this thread end after its current call, if it belongs to a ``ThreadPoolExecutor``.

    In a fork it is the only thread left, and would wait for another call forever.
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is _pool_thread.__code__:
            executor = frame.f_locals["executor_reference"]()
            if executor is not None:
                executor._shutdown = True
            frame.f_locals["work_queue"].put(None)
        frame = frame.f_back  # type: ignore[assignment]


def drop_callbacks(loop: Any) -> None:
    """Drop what an event loop of asyncio would call next. Other loops have no such attribute and still make those calls."""
    with suppress(AttributeError):
        loop._ready.clear()


def json_encode(encoder: json.JSONEncoder) -> Callable[[Any], str]:
    """Return the ``encode`` of a compact encoder that keeps text as it is, without what it repeats at each call.

    The standard library builds its encoder in C for each call, which takes longer than to encode the arguments of most
    jobs. Built once and called directly it takes a third of the time. Without ``markers`` a container that contains
    itself raises RecursionError.
    """
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    try:
        encode = make(None, encoder.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
        assert "".join(encode([1, "a", {"b": None}], 0)) == '[1,"a",{"b":null}]'
    except Exception:  # another interpreter, or a version that builds it differently
        return encoder.encode
    join = "".join
    return lambda value: join(encode(value, 0))
