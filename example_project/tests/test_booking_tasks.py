from types import SimpleNamespace

import pytest

from bookings import ticket
from bookings.models import Booking
from bookings.tasks import charge_card, send_confirmation, write_ticket
from djqueue import Discard, Retry
from djqueue.models import Job

pytestmark = pytest.mark.django_db


def attempt(number: int) -> SimpleNamespace:
    """A task's context, as far as ours look at it."""
    return SimpleNamespace(attempt=number)


def test_a_paid_booking_gets_one_ticket_job_however_often_the_charge_runs(booking):
    charge_card.call(attempt(1), booking.pk)
    charge_card.call(attempt(2), booking.pk)

    booking.refresh_from_db()
    job = Job.objects.get(task=write_ticket.module_path)
    assert booking.status == Booking.Status.PAID
    assert booking.ticket_job == str(job.pk)
    assert job.args == [booking.pk]


def test_a_busy_bank_is_asked_again_later(booking):
    Booking.objects.update(card=Booking.Card.BUSY)

    for number in (1, 2):
        with pytest.raises(Retry, match=f"busy \\(attempt {number}\\)") as caught:
            charge_card.call(attempt(number), booking.pk)
        assert caught.value.delay.total_seconds() == number
    assert charge_card.call(attempt(3), booking.pk).startswith(booking.reference)


def test_an_expired_card_ends_the_job_and_refuses_the_booking(booking):
    Booking.objects.update(card=Booking.Card.EXPIRED)

    with pytest.raises(Discard, match="expired"):
        charge_card.call(attempt(1), booking.pk)

    booking.refresh_from_db()
    assert booking.status == Booking.Status.REFUSED
    assert not Job.objects.exists()


def test_the_ticket_is_a_pdf_and_is_mailed_once(booking, var, mailoutbox):
    name = write_ticket.call(booking.pk)
    write_ticket.call(booking.pk)
    send_confirmation.call(booking.pk)
    send_confirmation.call(booking.pk)

    pdf = (var / "media" / name).read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert Job.objects.get().task == send_confirmation.module_path
    [mail] = mailoutbox
    assert mail.subject == "Your ticket to Tokyo"
    assert mail.attachments[0].content == pdf
    booking.refresh_from_db()
    assert booking.status == Booking.Status.CONFIRMED


def test_names_that_the_font_cannot_write_still_give_a_ticket(booking):
    booking.traveller = "Wisława 旅人 – Szymborska"

    assert ticket.as_pdf(booking).startswith(b"%PDF-")


def test_the_distance_is_that_of_the_globe(booking):
    assert booking.kilometres == pytest.approx(9370, abs=30)
