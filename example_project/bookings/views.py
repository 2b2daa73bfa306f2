from datetime import date, timedelta

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from airports.dataset import FAMOUS
from airports.models import Airport
from bookings.forms import BookingForm
from bookings.models import Booking
from bookings.tasks import charge_card, send_confirmation, write_ticket
from djqueue import Task, TaskResult, TaskResultDoesNotExist


def book(request: HttpRequest) -> HttpResponse:
    initial = {
        "origin": "FRA",
        "destination": request.GET.get("to", "LIS"),
        "departs_on": date.today() + timedelta(30),
    }
    form = BookingForm(request.POST or None, initial=initial)
    if form.is_valid():
        # The booking and its job are stored together or not at all. No worker can see the job before the
        # booking is committed, and a rollback takes the job with it.
        with transaction.atomic():
            booking = form.save()
            booking.charge_job = charge_card.enqueue(booking.pk).id
            booking.save(update_fields=["charge_job"])
        return redirect(booking)
    famous = Airport.objects.filter(iata__in=FAMOUS).order_by("city")
    return render(request, "bookings/form.html", {"form": form, "famous": famous})


def booking(request: HttpRequest, reference: str) -> HttpResponse:
    return render(request, "bookings/booking.html", _progress(reference))


def progress(request: HttpRequest, reference: str) -> HttpResponse:
    """Return the part of the booking's page that changes; the page asks for it until all jobs have ended."""
    return render(request, "bookings/_progress.html", _progress(reference))


def _progress(reference: str) -> dict:
    booking = get_object_or_404(Booking.objects.select_related("origin", "destination"), reference=reference)
    jobs = (
        ("Payment", charge_card, booking.charge_job),
        ("Ticket", write_ticket, booking.ticket_job),
        ("Mail", send_confirmation, booking.mail_job),
    )
    steps = [(label, _result(task, job_id)) for label, task, job_id in jobs]
    has_ended = booking.status in {Booking.Status.CONFIRMED, Booking.Status.REFUSED} and all(
        result.is_finished for _, result in steps if result
    )
    return {"booking": booking, "steps": steps, "has_ended": has_ended}


def _result(task: Task, job_id: str) -> TaskResult | None:
    try:
        return task.get_result(job_id) if job_id else None
    except TaskResultDoesNotExist:  # done and deleted long ago
        return None
