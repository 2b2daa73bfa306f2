from datetime import date

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q

from airports.models import Airport
from bookings.models import Booking


class AirportField(forms.CharField):
    """Takes the code of an airport: a list of 28,000 choices is too long to search."""

    widget = forms.TextInput(attrs={"list": "famous", "autocomplete": "off", "placeholder": "FRA"})

    def clean(self, value: str) -> Airport | None:
        code = super().clean(value).strip().upper()
        airport = Airport.objects.filter(Q(icao=code) | Q(iata=code)).first() if code else None
        if code and airport is None:
            raise ValidationError(f"There is no airport with the code {code}.")
        return airport


class BookingForm(forms.ModelForm):
    origin = AirportField(label="From")
    destination = AirportField(label="To")

    class Meta:
        model = Booking
        fields = ["origin", "destination", "departs_on", "traveller", "email", "card"]
        widgets = {"departs_on": forms.DateInput(attrs={"type": "date"})}

    def clean_departs_on(self) -> date:
        day = self.cleaned_data["departs_on"]
        if day < date.today():
            raise ValidationError("This day has passed.")
        return day

    def clean(self) -> dict:
        cleaned = super().clean()
        if cleaned.get("origin") and cleaned["origin"] == cleaned.get("destination"):
            self.add_error("destination", "You are there already.")
        return cleaned
