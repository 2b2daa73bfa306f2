"""The demonstration: two worker processes do a few thousand real jobs, and their work is checked."""

import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random

from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone
from rich.console import Console
from rich.table import Table

from airports import dataset
from airports.models import Airport
from airports.tasks import (
    draw_postcard,
    draw_world_map,
    fetch_weather,
    import_airports,
    write_country_report,
)
from bookings.models import Booking
from bookings.tasks import charge_card
from demo import proof
from demo.jobs import Tally, TaskFigures, figures, has_workers, highest_id, is_at_rest, tally
from demo.login import create_login
from demo.processes import manage, must_run, stop, tail
from demo.progress import progress
from demo.weather import WeatherService

BATCH = 100
TRAVELLERS = [
    "Ada Lovelace",
    "Ida Pfeiffer",
    "Zheng He",
    "Nellie Bly",
    "Ibn Battuta",
    "Amelia Earhart",
    "Matthew Henson",
    "Mary Kingsley",
    "Alexandra David-Néel",
    "Roald Amundsen",
    "Gertrude Bell",
    "Xuanzang",
    "Isabella Bird",
    "Fridtjof Nansen",
    "Bessie Coleman",
    "Freya Stark",
]


@dataclass(frozen=True, kw_only=True)
class Size:
    every: int = 1
    """Import every nth slice of the data set."""
    postcards: int = 120
    weather: int = 800
    bookings: int = 200


class Patience:
    """How long to wait while nothing happens. Slow progress is not a failure: each change restarts the wait."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = (-1, -1)
        self.since = 0.0

    def has_ended(self, tally: Tally) -> bool:
        now = (tally.enqueued, tally.ended)
        if now != self.last:
            self.last, self.since = now, time.monotonic()
        return time.monotonic() - self.since > self.seconds


class Show:
    def __init__(self, console: Console, size: Size, *, patience_seconds: float) -> None:
        self.console = console
        self.size = size
        self.run_id = timezone.now().strftime("%Y%m%d-%H%M%S-%f")[:19]
        self.log = settings.VAR_DIR / "worker.log"
        self.patience = Patience(patience_seconds)
        airports = dataset.airports()
        self.slices = [(start, start + BATCH) for start in range(0, len(airports), BATCH)][:: size.every]
        self.airports = [airport for start, stop in self.slices for airport in airports[start:stop]]

    def run(self) -> None:
        began = time.monotonic()
        self.prepare()
        weather = WeatherService()
        with (
            manage(
                *("runworker", "--processes", "2", "--concurrency", "8"),
                environment={"FERNWEH_WEATHER_URL": weather.url},
                log=self.log,
            ) as worker,
            weather,
        ):
            self.first_id = highest_id()
            self.say("Two worker processes start. Everything is enqueued while they work.")
            with progress(self.console) as self.progress:
                jobs_began = time.monotonic()
                self.enqueue_imports()
                self.wait(worker)
                self.enqueue_the_rest()
                tally = self.wait(worker)
                seconds = time.monotonic() - jobs_began
            if code := stop(worker):
                raise CommandError(f"The worker ended with exit code {code}.{tail(self.log)}")
            self.check(tally, weather)
        self.report(tally, seconds)
        self.say(f"The whole demonstration took {time.monotonic() - began:.1f} s.")

    def prepare(self) -> None:
        self.say(f"Run {self.run_id}: tables, login, and a clean desk.")
        call_command("migrate", verbosity=0, interactive=False)
        create_login()
        self.wait_for_other_workers()

        earlier = Booking.objects.exclude(demo_run="")
        for ticket in earlier.exclude(ticket="").values_list("ticket", flat=True):
            Path(settings.MEDIA_ROOT, ticket).unlink(missing_ok=True)
        earlier.delete()
        Airport.objects.filter(departures=None, arrivals=None).delete()
        for directory in (
            settings.VAR_DIR / "mails",
            settings.MEDIA_ROOT / "postcards",
            settings.MEDIA_ROOT / "reports",
        ):
            shutil.rmtree(directory, ignore_errors=True)
        (settings.MEDIA_ROOT / "world.png").unlink(missing_ok=True)
        settings.VAR_DIR.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)

    def wait_for_other_workers(self) -> None:
        """Have no other worker take this run's jobs: it would ask another weather service and write other files.

        What a killed worker left behind looks alive for some seconds; one that still does after that is alive.
        """
        for _ in range(30):
            if not has_workers():
                return
            time.sleep(0.5)
        raise CommandError("Another worker serves this database, perhaps that of `run.py serve`. Stop it first.")

    def enqueue_imports(self) -> None:
        """Enqueue a job per slice of the data set.

        Every tenth is enqueued twice, because any job may run twice, and that must not show.
        """
        import_airports.enqueue_many((limits, {}) for limits in self.slices + self.slices[::10])

    def enqueue_the_rest(self) -> None:
        dice = Random(self.run_id)
        codes = [airport.icao for airport in self.airports]
        known = [airport.icao for airport in self.airports if airport.iata]
        famous = [airport.icao for airport in self.airports if airport.iata in dataset.FAMOUS]
        self.countries = sorted({airport.country for airport in self.airports})
        self.postcards = (famous + sorted(set(known) - set(famous)))[: self.size.postcards]
        self.weather = dice.sample(codes, min(self.size.weather, len(codes)))

        draw_world_map.enqueue()
        write_country_report.enqueue_many(((country,), {}) for country in self.countries)
        draw_postcard.enqueue_many(((code,), {}) for code in self.postcards)
        fetch_weather.enqueue_many(((code,), {}) for code in self.weather)
        with transaction.atomic():  # the bookings and their jobs: both or neither
            bookings = Booking.objects.bulk_create(self.made_up_bookings(dice, known))
            charge_card.enqueue_many(((booking.pk,), {}) for booking in bookings)

    def made_up_bookings(self, dice: Random, codes: list[str]) -> Iterable[Booking]:
        for number in range(self.size.bookings):
            origin, destination = dice.sample(codes, 2)
            traveller = dice.choice(TRAVELLERS)
            yield Booking(
                traveller=traveller,
                email=f"{traveller.split()[0].lower()}@traveller.example",
                origin_id=origin,
                destination_id=destination,
                departs_on=date.today() + timedelta(dice.randint(1, 300)),
                card=Booking.Card.EXPIRED
                if number % 20 == 7
                else Booking.Card.BUSY
                if number % 5 == 2
                else Booking.Card.GOOD,
                demo_run=self.run_id,
            )

    def wait(self, worker: subprocess.Popen) -> Tally:
        """Wait until every job has ended; jobs that enqueue further jobs included."""
        while True:
            has_ended = is_at_rest()
            now = tally(self.first_id)  # afterwards: what is at rest stays as it is
            self.progress.show(now, has_ended=has_ended)
            if has_ended:
                return now
            must_run(worker, "worker", self.log)
            if self.patience.has_ended(now):
                missing = ", ".join(
                    f"{states.total() - now.ended_of(task)} of {task}"
                    for task, states in now.states.items()
                    if states.total() > now.ended_of(task)
                )
                raise CommandError(
                    f"No job has ended for {self.patience.seconds:g} seconds, although there is work: {missing}."
                    f"{tail(self.log)}"
                )
            time.sleep(0.3)

    def check(self, tally: Tally, weather: WeatherService) -> None:
        self.say("The work is checked.")
        try:
            for sentence in (
                proof.outcomes_are_as_planned(tally, self.run_id),
                proof.airports_are_imported(self.airports),
                proof.pictures_open(self.postcards),
                proof.reports_are_complete(self.countries),
                proof.weather_was_asked(self.weather, weather),
                proof.bookings_are_done(self.run_id),
            ):
                self.console.print(f"  [green]✓[/] {sentence}", highlight=False)
        except (proof.NotProven, OSError) as error:
            raise CommandError(f"The demonstration failed: {error}{tail(self.log)}") from error

    def report(self, tally: Tally, seconds: float) -> None:
        table = Table(title=f"Run {self.run_id}", caption_justify="left")
        table.add_column("task")
        for heading in ("jobs", "completed", "discarded", "retried", "p50 ms", "p99 ms", "jobs/s"):
            table.add_column(heading, justify="right")
        by_task = figures(self.first_id)
        for task, of_task in sorted(by_task.items()):
            table.add_row(*_cells(task, of_task))
        table.add_section()
        table.add_row(
            "all",
            f"{tally.enqueued:,}",
            *(f"{sum(f.outcomes[state] for f in by_task.values()):,}" for state in ("completed", "discarded")),
            f"{sum(f.retried for f in by_task.values()):,}",
            "",
            "",
            f"{tally.enqueued / seconds:,.0f}",
        )
        self.console.print(table)

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False)


def _cells(task: str, of_task: TaskFigures) -> Iterable[str]:
    yield task.rpartition(".")[2]
    yield f"{of_task.count:,}"
    yield f"{of_task.outcomes['completed']:,}"
    yield f"{of_task.outcomes['discarded']:,}"
    yield f"{of_task.retried:,}"
    yield f"{of_task.percentile(50) * 1000:,.1f}"
    yield f"{of_task.percentile(99) * 1000:,.1f}"
    yield f"{of_task.per_second:,.0f}"
