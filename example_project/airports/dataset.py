"""The data: about 28,000 airports of the world, from the package ``airportsdata``."""

from functools import cache
from threading import Lock

import airportsdata

from airports.models import Airport

FAMOUS = """
    FRA JFK LHR CDG HND SIN SYD GRU CPT DXB YVR MEX KEF LIS IST DEL BKK HKG ICN AKL EZE LIM NBO CAI ATH FCO
    BCN AMS ZRH VIE CPH OSL ARN HEL WAW PRG BUD DUB EDI MAD SFO ORD MIA SEA HNL ANC YUL BOG SCL MUC HAM
""".split()  # noqa: SIM905  fifty quoted strings are harder to read
"""IATA codes that most travellers know, for suggestions."""


_lock = Lock()


def airports() -> list[Airport]:
    """Return every airport, unsaved, in the order of its code."""
    # Reading them takes a moment, so each process does it once. Without the lock, all threads of a worker would
    # do it at the same time when the first jobs come.
    with _lock:
        return _airports()


@cache
def _airports() -> list[Airport]:
    return [
        Airport(
            icao=code,
            iata=row["iata"],
            name=row["name"].strip(),
            city=row["city"],
            region=row["subd"],
            country=row["country"],
            elevation_feet=row["elevation"],
            latitude=row["lat"],
            longitude=row["lon"],
            timezone=row["tz"],
        )
        for code, row in sorted(airportsdata.load("ICAO").items())
    ]


FIELDS = [field.name for field in Airport._meta.concrete_fields if field.name not in {"icao", "weather", "postcard"}]
"""The columns that the import owns."""
