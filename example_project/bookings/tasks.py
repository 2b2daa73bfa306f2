"""What happens after a booking: charge the card, write the ticket, send the mail. Each task enqueues the
next.

The pattern to copy: lock the row, look whether the work is done already (a job may run twice), and enqueue
the next job in the transaction that records this one's work. Then there is never a paid booking without a
ticket job, nor one with two of them.
"""

from datetime import timedelta

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.utils import timezone

from bookings import bank, ticket
from bookings.models import Booking
from djqueue import Discard, Retry, TaskContext, task
from fernweh.files import publish


@task(priority=10, max_attempts=5, takes_context=True)
def charge_card(context: TaskContext, booking_id: int) -> str:
    booking = Booking.objects.select_related("origin", "destination").get(pk=booking_id)
    try:
        receipt = bank.charge(booking.card, booking.price, reference=booking.reference, attempt=context.attempt)
    except bank.BankIsBusy as error:
        raise Retry(timedelta(seconds=context.attempt), str(error)) from error
    except bank.CardRefused as error:
        Booking.objects.filter(pk=booking_id).update(status=Booking.Status.REFUSED)
        raise Discard(str(error)) from error

    with transaction.atomic():
        booking = Booking.objects.select_for_update().get(pk=booking_id)
        if booking.status == Booking.Status.NEW:
            booking.status = Booking.Status.PAID
            booking.ticket_job = write_ticket.enqueue(booking_id).id
            booking.save(update_fields=["status", "ticket_job"])
    return receipt


@task(queue_name="reports", priority=5)
def write_ticket(booking_id: int) -> str:
    booking = Booking.objects.select_related("origin", "destination").get(pk=booking_id)
    name = publish(f"tickets/{booking.reference}.pdf", ticket.as_pdf(booking))

    with transaction.atomic():
        booking = Booking.objects.select_for_update().get(pk=booking_id)
        if not booking.ticket:
            booking.ticket = name
            booking.mail_job = send_confirmation.enqueue(booking_id).id
            booking.save(update_fields=["ticket", "mail_job"])
    return name


@task(queue_name="mail", max_attempts=10)
def send_confirmation(booking_id: int) -> str:
    booking = Booking.objects.select_related("origin", "destination").get(pk=booking_id)
    if booking.mailed_at is None:
        mail = EmailMessage(
            subject=f"Your ticket to {booking.destination.city or booking.destination.name}",
            body=(
                f"Dear {booking.traveller},\n\n"
                f"your journey from {booking.origin} to {booking.destination}\n"
                f"on {booking.departs_on:%d %B %Y} is booked. The ticket is attached.\n\n"
                "Fernweh"
            ),
            to=[booking.email],
            headers={"X-Booking": booking.reference},
        )
        mail.attach_file(settings.MEDIA_ROOT / booking.ticket)
        mail.send()
        # A worker that is killed between these two lines sends the mail again: sending a mail and
        # committing cannot be one step.
        Booking.objects.filter(pk=booking_id).update(mailed_at=timezone.now(), status=Booking.Status.CONFIRMED)
    return booking.email
