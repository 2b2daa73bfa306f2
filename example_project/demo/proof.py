"""Look whether the work was really done.

Every function returns a sentence, or raises ``NotProven`` with what is wrong.
"""

from email import message_from_bytes, policy
from pathlib import Path
from zipfile import ZipFile

from django.conf import settings
from openpyxl import load_workbook
from PIL import Image

from airports import dataset
from airports.models import Airport
from airports.tasks import POSTCARD_WIDTHS
from bookings.models import Booking
from demo.jobs import Tally
from demo.weather import WeatherService, weather_at

MEDIA = Path(settings.MEDIA_ROOT)


class NotProven(Exception):
    pass


def demand(claim: bool, otherwise: str) -> None:
    if not claim:
        raise NotProven(otherwise)


def airports_are_imported(expected: list[Airport]) -> str:
    columns = ["icao", *dataset.FIELDS]
    wanted = {tuple(getattr(airport, column) for column in columns) for airport in expected}
    codes = [airport.icao for airport in expected]
    found = set(Airport.objects.filter(icao__in=codes).values_list(*columns))
    demand(found == wanted, f"{len(wanted - found)} airports are missing or wrong in the database.")
    return f"{len(found):,} airports imported, every value as in the data set"


def pictures_open(codes: list[str]) -> str:
    sizes = {f"{code}.jpg": 1280 for code in codes}
    sizes |= {f"{code}-{width}.jpg": width for code in codes for width in POSTCARD_WIDTHS}
    for name, width in sizes.items():
        path = MEDIA / "postcards" / name
        demand(path.exists(), f"{path} does not exist.")
        with Image.open(path) as image:
            demand(image.width == width, f"{path} is {image.width} pixels wide, not {width}.")
            image.load()
    with Image.open(MEDIA / "world.png") as image:
        image.load()
    return f"{len(sizes) + 1:,} pictures drawn or resized; all of them open"


def reports_are_complete(countries: list[str]) -> str:
    rows = 0
    for country in countries:
        with ZipFile(MEDIA / "reports" / f"{country}.xlsx") as archive:
            # What openpyxl would tell as well, in a tenth of the time.
            count = archive.read("xl/worksheets/sheet1.xml").count(b"<row ") - 1
        wanted = Airport.objects.filter(country=country).count()
        demand(count == wanted, f"The report of {country} has {count} rows, not {wanted}.")
        rows += count
    load_workbook(MEDIA / "reports" / f"{countries[0]}.xlsx").close()
    return f"{len(countries)} spreadsheets with {rows:,} rows"


def weather_was_asked(codes: list[str], service: WeatherService) -> str:
    silent = [code for code in codes if not service.hits[code]]
    demand(not silent, f"The weather was never requested for {', '.join(silent[:5])} ({len(silent)} airports).")
    for airport in Airport.objects.filter(pk__in=codes):
        demand(airport.weather == weather_at(airport.pk), f"The weather at {airport.pk} was not stored.")
    return f"{service.hits.total():,} requests answered by the weather service"


def bookings_are_done(run: str) -> str:
    bookings = Booking.objects.filter(demo_run=run)
    mails = {}
    for path in settings.VAR_DIR.glob("mails/*.eml"):
        mail = message_from_bytes(path.read_bytes(), policy=policy.default)
        demand(mail["X-Booking"] not in mails, f"Booking {mail['X-Booking']} got two mails.")
        mails[mail["X-Booking"]] = mail
    tickets = refused = 0
    for booking in bookings:
        if booking.card == Booking.Card.EXPIRED:
            demand(booking.status == Booking.Status.REFUSED, f"Booking {booking.reference} should be refused.")
            demand(not booking.ticket, f"Booking {booking.reference} was refused and has a ticket.")
            refused += 1
            continue
        demand(booking.status == Booking.Status.CONFIRMED, f"Booking {booking.reference} is {booking.status}.")
        pdf = (MEDIA / booking.ticket).read_bytes()
        demand(pdf.startswith(b"%PDF-") and b"%%EOF" in pdf[-16:], f"{booking.ticket} is not a complete PDF.")
        demand(booking.reference in mails, f"There is no mail for booking {booking.reference}.")
        attached = next(mails[booking.reference].iter_attachments()).get_content().rstrip(b"\n")
        demand(attached == pdf.rstrip(b"\n"), f"The mail of {booking.reference} carries another ticket.")
        tickets += 1
    return f"{tickets} tickets written as PDF and sent by mail; {refused} bookings refused"


def outcomes_are_as_planned(tally: Tally, run: str) -> str:
    """Every job completed, but those of the expired cards, which were discarded."""
    planned = Booking.objects.filter(demo_run=run, card=Booking.Card.EXPIRED).count()
    discarded = 0
    for task, states in tally.states.items():
        expected = planned if task == "bookings.tasks.charge_card" else 0
        demand(
            states["discarded"] == expected and not states["cancelled"],
            f"{task}: {states['discarded']} discarded, {expected} planned; {states['cancelled']} cancelled.",
        )
        discarded += expected
    completed = tally.enqueued - discarded
    return f"{tally.enqueued:,} jobs ended: {completed:,} completed, {discarded} discarded as planned"
