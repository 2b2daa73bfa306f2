from math import asin, cos, radians, sin, sqrt

from django.db import models
from django.urls import reverse

EARTH_RADIUS_KM = 6371


class Airport(models.Model):
    icao = models.CharField("ICAO code", max_length=4, primary_key=True)
    iata = models.CharField("IATA code", max_length=3, blank=True, db_index=True)
    name = models.CharField(max_length=120)
    city = models.CharField(max_length=80, blank=True)
    region = models.CharField(max_length=80, blank=True)
    country = models.CharField(max_length=2, db_index=True)
    elevation_feet = models.FloatField()
    latitude = models.FloatField()
    longitude = models.FloatField()
    timezone = models.CharField(max_length=50)

    # What tasks found out or made.
    weather = models.JSONField(null=True, blank=True)
    postcard = models.CharField(max_length=100, blank=True, help_text="Name of the file below MEDIA_ROOT.")

    class Meta:
        ordering = ["icao"]

    def __str__(self) -> str:
        return f"{self.name} ({self.code})"

    def get_absolute_url(self) -> str:
        return reverse("airport", args=[self.icao])

    @property
    def code(self) -> str:
        return self.iata or self.icao

    @property
    def place(self) -> str:
        return ", ".join(part for part in (self.city, self.region, self.country) if part)

    def distance_to(self, other: "Airport") -> float:
        """Return the great-circle distance in kilometres."""
        latitude, other_latitude = radians(self.latitude), radians(other.latitude)
        half_chord = (
            sin((other_latitude - latitude) / 2) ** 2
            + cos(latitude) * cos(other_latitude) * sin(radians(other.longitude - self.longitude) / 2) ** 2
        )
        return 2 * EARTH_RADIUS_KM * asin(sqrt(half_chord))
