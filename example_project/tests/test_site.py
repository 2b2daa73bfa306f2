import pytest

from airports.models import Airport
from airports.tasks import draw_postcard, fetch_weather
from bookings.models import Booking
from bookings.tasks import charge_card
from djqueue.models import Job

FORM = {
    "origin": "FRA",
    "destination": "rjaa",
    "departs_on": "2090-01-31",
    "traveller": "Ida Pfeiffer",
    "email": "ida@traveller.example",
    "card": "4242",
}


@pytest.mark.django_db(transaction=True)
def test_a_booking_and_its_job_are_stored_together(client, airports):
    response = client.post("/bookings/new/", FORM)

    booking = Booking.objects.get()
    job = Job.objects.get()
    assert response.status_code == 302
    assert response.url == booking.get_absolute_url()
    assert (job.task, job.args, str(job.pk)) == (charge_card.module_path, [booking.pk], booking.charge_job)


@pytest.mark.django_db(transaction=True)
def test_a_rollback_leaves_neither_a_booking_nor_a_job(client, airports, monkeypatch):
    enqueued = []

    def fail_after_enqueue(booking: Booking, *args, update_fields=None, **kwargs):
        if update_fields:
            enqueued.extend(Job.objects.values_list("pk", flat=True))
            raise RuntimeError("the power failed")
        return save(booking, *args, **kwargs)

    save = Booking.save
    monkeypatch.setattr(Booking, "save", fail_after_enqueue)

    with pytest.raises(RuntimeError, match="power"):
        client.post("/bookings/new/", FORM)

    assert len(enqueued) == 1
    assert not Booking.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("origin", "XXXX", "There is no airport with the code XXXX."),
        ("destination", "FRA", "You are there already."),
        ("departs_on", "2000-01-01", "This day has passed."),
    ],
)
def test_a_wrong_form_is_explained_and_enqueues_nothing(client, airports, field, value, message):
    response = client.post("/bookings/new/", FORM | {field: value})

    assert message in response.text if hasattr(response, "text") else message in response.content.decode()
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_the_page_of_a_booking_shows_its_jobs(client, booking):
    job = charge_card.enqueue(booking.pk)
    Booking.objects.update(charge_job=job.id)

    page = client.get(booking.get_absolute_url()).content.decode()
    part = client.get(f"{booking.get_absolute_url()}progress/").content.decode()

    assert f"job {job.id} is available" in page
    assert f"job {job.id} is available" in part
    assert "waits for the step before" in part
    assert "data-has-ended" not in part


@pytest.mark.django_db
def test_a_booking_whose_jobs_were_pruned_long_ago_still_has_a_page(client, booking):
    Booking.objects.update(charge_job="1", status=Booking.Status.CONFIRMED)

    assert "data-has-ended" in client.get(booking.get_absolute_url()).content.decode()


@pytest.mark.django_db
def test_an_airport_is_found_and_its_button_enqueues_two_jobs(client, airports):
    assert "Frankfurt" in client.get("/airports/?q=fra").content.decode()
    assert "Codes" in client.get("/airports/EDDF/").content.decode()

    client.post("/airports/EDDF/")

    assert set(Job.objects.values_list("task", "queue")) == {
        (draw_postcard.module_path, "images"),
        (fetch_weather.module_path, "weather"),
    }


@pytest.mark.django_db
def test_the_front_page_counts(client, airports):
    Airport.objects.filter(pk="EDDF").update(postcard="postcards/EDDF.jpg")

    page = client.get("/").content.decode()

    assert f"<strong>{len(airports)}</strong> airports" in page
    assert "postcards/EDDF-640.jpg" in page
