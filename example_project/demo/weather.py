"""A pretend weather service on a free local port: slow, as they are, and it counts who asked."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from zlib import crc32

SKIES = ("clear", "a few clouds", "overcast", "drizzle", "rain", "fog", "thunder")


class WeatherService(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *, answers_after: float = 0.08) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers_after = answers_after
        self.hits: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing when a client went away."""


class _Handler(BaseHTTPRequestHandler):
    server: WeatherService

    def do_GET(self) -> None:
        icao = self.path.strip("/")
        with self.server.lock:
            self.server.hits[icao] += 1
        time.sleep(self.server.answers_after)
        body = json.dumps(weather_at(icao)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def weather_at(icao: str) -> dict[str, str | int]:
    """Make up the weather. It never changes."""
    dice = crc32(icao.encode())
    return {"icao": icao, "celsius": dice % 40 - 8, "sky": SKIES[dice // 40 % len(SKIES)]}
