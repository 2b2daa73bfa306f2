import socket
import time
from argparse import ArgumentParser
from subprocess import Popen
from typing import Any

from django.conf import settings
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand

from airports import dataset
from airports.models import Airport
from airports.tasks import draw_postcard, draw_world_map, import_airports
from demo.jobs import highest_id, tally
from demo.login import PASSWORD, USERNAME, create_login
from demo.processes import leave_on_sigterm, manage, must_run
from demo.weather import WeatherService


class Command(BaseCommand):
    help = "Run the site, its admin and a worker until Ctrl-C."
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, help="Default: 8000, or the next free one when that is taken.")

    def handle(self, *args: Any, port: int | None, **options: Any) -> None:
        leave_on_sigterm()
        call_command("migrate", verbosity=0, interactive=False)
        has_login = create_login()
        settings.VAR_DIR.mkdir(parents=True, exist_ok=True)
        port = port or _free_port()
        address = f"127.0.0.1:{port}"
        weather = WeatherService()
        try:
            with (
                manage(
                    *("runworker", "--processes", "1", "--concurrency", "8"),
                    environment={"FERNWEH_WEATHER_URL": weather.url},
                ) as worker,
                manage("runserver", "--noreload", address) as site,
                weather,
            ):
                self._wait_for(port, site)
                self._fill(worker, site)
                self.stdout.write(f"\n  Site:   http://{address}/")
                login = f"   login {USERNAME}, password {PASSWORD}" if has_login else ""
                self.stdout.write(f"  Admin:  http://{address}/admin/{login}")
                self.stdout.write("  Stop with Ctrl-C.\n")
                while True:
                    must_run(worker, "worker")
                    must_run(site, "site")
                    time.sleep(0.5)
        except KeyboardInterrupt:
            self.stdout.write("Stopped.")

    def _fill(self, *processes: Popen) -> None:
        """Have the worker do what is missing on the first page, and wait for it: what a browser opens then is complete.

        The map comes after the import, because it consists of the airports.
        """
        airports = dataset.airports()
        before = highest_id()
        if is_incomplete := Airport.objects.count() < len(airports):
            self.stdout.write(f"The worker imports {len(airports):,} airports and draws the map ...")
            import_airports.enqueue_many(((start, start + 500), {}) for start in range(0, len(airports), 500))
            self._wait_for_jobs(before, *processes)
        if is_incomplete or not (settings.MEDIA_ROOT / "world.png").exists():
            draw_world_map.enqueue()
        if not Airport.objects.exclude(postcard="").exists():
            famous = [airport.icao for airport in airports if airport.iata in dataset.FAMOUS]
            draw_postcard.enqueue_many(((icao,), {}) for icao in famous)
        self._wait_for_jobs(before, *processes)

    def _wait_for_jobs(self, after: int, *processes: Popen) -> None:
        while (now := tally(after)).ended < now.enqueued:
            for process in processes:
                must_run(process, "worker or the site")
            time.sleep(0.2)

    def _wait_for(self, port: int, site: Popen) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            must_run(site, "site")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise CommandError(f"The site did not start to listen on port {port}.")


def _free_port(first: int = 8000) -> int:
    for port in range(first, first + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise CommandError(f"All ports from {first} to {first + 99} are taken. Choose one with --port.")
