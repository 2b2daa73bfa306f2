import json
from zipfile import ZipFile

import pytest
from PIL import Image

from airports import dataset, drawing
from airports.models import Airport
from airports.tasks import (
    draw_postcard,
    draw_world_map,
    fetch_weather,
    import_airports,
    resize_postcard,
    write_country_report,
)
from demo.weather import WeatherService, weather_at
from djqueue.models import Job

pytestmark = pytest.mark.django_db


def test_an_import_that_runs_twice_imports_once():
    assert import_airports.call(100, 150) == import_airports.call(100, 150) == 50

    assert set(Airport.objects.values_list("icao", flat=True)) == {
        airport.icao for airport in dataset.airports()[100:150]
    }


def test_an_import_corrects_what_changed_and_keeps_what_tasks_found_out():
    import_airports.call(0, 1)
    Airport.objects.update(name="Old name", postcard="postcards/old.jpg")

    import_airports.call(0, 1)

    airport = Airport.objects.get()
    assert airport.name == dataset.airports()[0].name
    assert airport.postcard == "postcards/old.jpg"


def test_a_postcard_is_drawn_and_two_jobs_resize_it(airports, var):
    name = draw_postcard.call("EDDF")

    with Image.open(var / "media" / name) as image:
        assert image.size == (drawing.WIDTH, drawing.HEIGHT)
    assert Airport.objects.get(pk="EDDF").postcard == name
    jobs = Job.objects.filter(task=resize_postcard.module_path, queue="images").order_by("id")
    assert [job.args for job in jobs] == [["EDDF", 640], ["EDDF", 320]]


def test_a_postcard_is_resized(airports, var):
    draw_postcard.call("EDDF")

    name = resize_postcard.call("EDDF", 320)

    with Image.open(var / "media" / name) as image:
        assert image.size == (320, 215)
    assert not list((var / "media" / "postcards").glob(".*")), "a temporary file was left"


@pytest.mark.parametrize("icao", ["NZSP", "NFFN"])
def test_postcards_can_be_drawn_at_the_pole_and_at_the_date_line(db, icao):
    airport = next(airport for airport in dataset.airports() if airport.icao == icao)

    assert drawing.postcard(airport, dataset.airports()).startswith(b"\xff\xd8")


def test_the_world_is_drawn(airports, var):
    with Image.open(var / "media" / draw_world_map.call()) as image:
        assert image.width == 2000
        assert image.getextrema()[3] == (0, 170)


def test_a_report_has_a_row_per_airport(airports, var):
    report = write_country_report.call("DE")

    assert report["rows"] == len(airports) - 1
    with ZipFile(var / "media" / report["file"]) as archive:
        assert archive.read("xl/worksheets/sheet1.xml").count(b"<row ") == len(airports)


def test_the_weather_is_asked_and_stored(airports, settings):
    with WeatherService(answers_after=0) as service:
        settings.WEATHER_URL = service.url
        result = fetch_weather.call("EDDF")

    assert result == weather_at("EDDF") == Airport.objects.get(pk="EDDF").weather
    assert service.hits == {"EDDF": 1}
    assert json.dumps(result)
