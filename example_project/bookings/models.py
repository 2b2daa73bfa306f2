from django.db import models
from django.urls import reverse
from django.utils.crypto import get_random_string

from airports.models import Airport


def new_reference() -> str:
    return get_random_string(6, "ABCDEFGHJKLMNPQRSTUVWXYZ23456789")


class Booking(models.Model):
    class Card(models.TextChoices):
        GOOD = "4242", "4242 4242 4242 4242: works"
        BUSY = "4500", "4500 0000 0000 0002: the bank is busy at first, then it works (a retry)"
        EXPIRED = "4013", "4013 0000 0000 0006: has expired (the job is discarded)"

    class Status(models.TextChoices):
        NEW = "new"
        PAID = "paid"
        REFUSED = "refused"
        CONFIRMED = "confirmed"

    reference = models.CharField(max_length=6, unique=True, default=new_reference, editable=False)
    traveller = models.CharField("your name", max_length=80)
    email = models.EmailField("e-mail address")
    origin = models.ForeignKey(Airport, models.PROTECT, related_name="departures", verbose_name="from")
    destination = models.ForeignKey(Airport, models.PROTECT, related_name="arrivals", verbose_name="to")
    departs_on = models.DateField("departure")
    card = models.CharField(max_length=4, choices=Card, default=Card.GOOD)
    status = models.CharField(max_length=9, choices=Status, default=Status.NEW, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    ticket = models.CharField(max_length=100, blank=True, help_text="Name of the file below MEDIA_ROOT.")
    mailed_at = models.DateTimeField(null=True, blank=True, editable=False)

    # The jobs of this booking. Plain values, no foreign keys: a finished job moves to another table and is
    # deleted some day.
    charge_job = models.CharField(max_length=20, blank=True, editable=False)
    ticket_job = models.CharField(max_length=20, blank=True, editable=False)
    mail_job = models.CharField(max_length=20, blank=True, editable=False)

    demo_run = models.CharField(max_length=20, blank=True, editable=False, db_index=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.reference}: {self.traveller}, {self.origin_id} to {self.destination_id}"

    def get_absolute_url(self) -> str:
        return reverse("booking", args=[self.reference])

    @property
    def kilometres(self) -> int:
        return round(self.origin.distance_to(self.destination))

    @property
    def price(self) -> int:
        """In euros."""
        return 39 + self.kilometres // 12
