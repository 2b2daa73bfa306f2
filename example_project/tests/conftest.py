from datetime import date
from pathlib import Path

import pytest

from airports import dataset
from airports.models import Airport
from bookings.models import Booking


@pytest.fixture(autouse=True)
def var(settings, tmp_path: Path) -> Path:
    """Keep the files that a test makes out of the site's own."""
    settings.VAR_DIR = tmp_path
    settings.MEDIA_ROOT = tmp_path / "media"
    return tmp_path


@pytest.fixture
def airports(db) -> dict[str, Airport]:
    """Frankfurt and its surroundings, and Tokyo."""
    chosen = [
        airport
        for airport in dataset.airports()
        if airport.icao == "RJAA" or (airport.country == "DE" and airport.iata)
    ]
    return {airport.icao: airport for airport in Airport.objects.bulk_create(chosen)}


@pytest.fixture
def booking(airports) -> Booking:
    return Booking.objects.create(
        traveller="Ida Pfeiffer",
        email="ida@traveller.example",
        origin=airports["EDDF"],
        destination=airports["RJAA"],
        departs_on=date(2030, 5, 1),
    )
