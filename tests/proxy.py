"""A TCP proxy between a worker and its database that can be slow, cut, refuse connections or swallow everything."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Proxy:
    """Listens on a free port of 127.0.0.1. All methods may be called from any thread and return when it is done."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self.latency_seconds = 0.0
        self.watch: Callable[[bytes], None] | None = None
        """Called with what clients send, before it goes on its way; on the proxy's thread."""
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            self.port: int = chosen.getsockname()[1]
        self._thread.start()
        self.accept()
        self.flow()

    def accept(self) -> None:
        """Take connections."""
        self._call(self._listen())

    def refuse(self) -> None:
        """Refuse new connections and cut those that there are."""
        self._call(self._unlisten())
        self.cut()

    def cut(self) -> None:
        """Reset all connections."""
        self._call(self._abort())

    def swallow(self) -> None:
        """Take every byte and pass none on, in either direction, on old and new connections."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def flow(self) -> None:
        """Pass on again; what was swallowed meanwhile comes late."""
        self._loop.call_soon_threadsafe(self._open.set)

    def close(self) -> None:
        self.refuse()
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _unlisten(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _end(self) -> None:
        for _ in range(10):  # a connection accepted just now gets its task only after some rounds of the loop
            await asyncio.sleep(0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            with suppress(OSError):
                other_reader, other_writer = await asyncio.open_connection(*self._target)
                self._writers.add(other_writer)
                ways = (
                    self._pump(reader, other_writer, is_client=True),
                    self._pump(other_reader, writer, is_client=False),
                )
                pumps = [asyncio.ensure_future(way) for way in ways]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)
                    other_writer.transport.abort()
                    self._writers.discard(other_writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self.watch is not None and is_client:
                    self.watch(data)
                if self.latency_seconds:
                    await asyncio.sleep(self.latency_seconds)
                await self._open.wait()
                writer.write(data)
                await writer.drain()


@contextmanager
def proxy(host: str, port: int) -> Iterator[Proxy]:
    running = Proxy(host, port)
    try:
        yield running
    finally:
        running.close()
