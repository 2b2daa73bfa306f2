"""The background jobs of the guide.

Every task here may run twice for the same arguments: a worker can be killed after the work and before it
could say so. So they say what shall be true ("this airport has these values", "this file has this content")
and do not add up.
"""

from io import BytesIO
from typing import Any

import httpx
from django.conf import settings
from django.db import transaction
from openpyxl import Workbook
from openpyxl.cell import WriteOnlyCell
from openpyxl.styles import Font

from airports import dataset, drawing
from airports.models import Airport
from djqueue import task
from fernweh.files import publish

POSTCARD_WIDTHS = (640, 320)


@task
def import_airports(start: int, stop: int) -> int:
    """Import one slice of the data set: insert what is new, correct what changed."""
    batch = dataset.airports()[start:stop]
    Airport.objects.bulk_create(batch, update_conflicts=True, unique_fields=["icao"], update_fields=dataset.FIELDS)
    return len(batch)


@task(queue_name="images", priority=10)
def draw_world_map() -> str:
    """Draw a map of the world that consists of nothing but airports."""
    coordinates = Airport.objects.values_list("latitude", "longitude")
    return publish("world.png", drawing.world_map(coordinates))


@task(queue_name="images")
def draw_postcard(icao: str) -> str:
    """Draw a postcard of an airport and its surroundings, then have it resized."""
    airport = Airport.objects.get(pk=icao)
    north, east = drawing.reach(airport)
    neighbours = Airport.objects.filter(
        latitude__range=(airport.latitude - north, airport.latitude + north),
        longitude__range=(airport.longitude - east, airport.longitude + east),
    ).exclude(pk=icao)
    picture = drawing.postcard(airport, neighbours.only("iata", "latitude", "longitude"))
    name = publish(f"postcards/{icao}.jpg", picture)
    with transaction.atomic():  # the postcard and the jobs that go on with it: both or neither
        Airport.objects.filter(pk=icao).update(postcard=name)
        for width in POSTCARD_WIDTHS:
            resize_postcard.enqueue(icao, width)
    return name


@task(queue_name="images", priority=-10)
def resize_postcard(icao: str, width: int) -> str:
    original = settings.MEDIA_ROOT / "postcards" / f"{icao}.jpg"
    return publish(f"postcards/{icao}-{width}.jpg", drawing.resized(original, width))


@task(queue_name="reports")
def write_country_report(country: str) -> dict[str, Any]:
    """Write all airports of a country into a spreadsheet."""
    workbook = Workbook(write_only=True)
    sheet = workbook.create_sheet(f"Airports in {country}")
    sheet.freeze_panes = "A2"
    sheet.column_dimensions["C"].width = 48

    titles = []
    for field in Airport._meta.concrete_fields[:10]:
        cell = WriteOnlyCell(sheet, str(field.verbose_name))
        cell.font = Font(bold=True)
        titles.append(cell)
    sheet.append(titles)

    rows = 0
    columns = ["icao", *dataset.FIELDS]
    for airport in Airport.objects.filter(country=country).order_by("icao").values_list(*columns).iterator():
        sheet.append(airport)
        rows += 1

    buffer = BytesIO()
    workbook.save(buffer)
    return {"file": publish(f"reports/{country}.xlsx", buffer.getvalue()), "rows": rows}


# Certificates are read once per process: a client of its own for every job would read them every time.
TLS = httpx.create_ssl_context()


@task(queue_name="weather", max_attempts=5)
async def fetch_weather(icao: str) -> dict[str, Any]:
    """Ask the weather service. It answers slowly, and an async task waits for it without keeping a thread."""
    async with httpx.AsyncClient(base_url=settings.WEATHER_URL, verify=TLS, timeout=20) as client:
        response = await client.get(f"/{icao}")
    response.raise_for_status()
    weather = response.json()
    await Airport.objects.filter(pk=icao).aupdate(weather=weather)
    return weather
