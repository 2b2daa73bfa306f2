"""Store large arguments compressed, in the same columns as plain ones, and read them back.

Plain args are a JSON array and plain kwargs an object. Compressed, args is an object, ``{"zlib": "<base64>"}``, that holds
both, and kwargs is empty. Plain arguments never look like that, so a reader does not need the task, and an engine
stores both alike. Compression is the last step before the store: sizes and unique keys are those of the plain arguments.

Compressed arguments do not pass through the store's own JSON type: keys keep their order, and ``-0.0`` keeps its sign.
"""

from __future__ import annotations

import json
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import Any

from djqueue.jobs.encoding import MAX_ARGS_BYTES, Encoded

LEAST_BYTES = 1024
"""Smaller arguments are stored as they are: compressing them costs more than it saves."""
_LEVEL = 1
"""The fastest level. Slower levels make JSON a tenth smaller in two to four times the time."""
_KEY = "zlib"
_decoder: Any = json.JSONDecoder()
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once


def compressed(plain: Encoded) -> Encoded:
    """Return the arguments compressed if they are large and that makes them smaller, otherwise unchanged."""
    if len(plain.args) + len(plain.kwargs) < LEAST_BYTES:
        return plain
    text = f"[{plain.args},{plain.kwargs}]".encode()
    packed = b2a_base64(zlib.compress(text, _LEVEL), newline=False).decode("ascii")
    args = f'{{"{_KEY}":"{packed}"}}'
    return Encoded(args, "{}") if len(args) < len(text) - len("[,{}]") else plain


def decode_arguments(args: str, kwargs: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments with which to call a task; raise if the row does not contain any."""
    try:
        # The C function behind json.loads, without its checks: this runs once per job.
        positional = _scan(args, 0)[0] if args != "[]" else []
        named = _scan(kwargs, 0)[0] if kwargs != "{}" else {}
    except StopIteration:
        raise ValueError("The stored arguments are no JSON; somebody edited the row.") from None
    if type(positional) is not list:
        positional, named = _expanded(positional, named)
    if not isinstance(positional, list) or not isinstance(named, dict):
        raise TypeError("The stored arguments are not a list and an object; somebody edited the row.")
    return positional, named


def readable(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return stored arguments for display. Never fails: arguments that cannot be read are returned as they are stored."""
    if type(args) is list:
        return args, kwargs
    try:
        return _expanded(args, kwargs)
    except ValueError:
        return args, kwargs


def _expanded(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Decompress arguments if they are compressed; raise ``ValueError`` if that fails."""
    if not (isinstance(args, dict) and args.keys() == {_KEY} and kwargs == {}):
        return args, kwargs
    stream = zlib.decompressobj()
    limit = MAX_ARGS_BYTES + len("[,]")
    try:
        # A few bytes can expand to gigabytes, so no more is unpacked than any backend would have accepted.
        text = stream.decompress(a2b_base64(args[_KEY]), limit)
        if not stream.eof:
            what = f"more than {MAX_ARGS_BYTES:,} bytes" if stream.unconsumed_tail else "only a part of their data"
            raise ValueError(f"they hold {what}")
        positional, named = json.loads(text)
    except (TypeError, ValueError, RecursionError, zlib.error) as error:
        raise ValueError(f"The compressed arguments cannot be read: {error}. Somebody edited the row.") from None
    return positional, named
