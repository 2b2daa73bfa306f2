from django.contrib import admin

from airports.models import Airport


@admin.register(Airport)
class AirportAdmin(admin.ModelAdmin):
    list_display = ["icao", "iata", "name", "city", "country"]
    search_fields = ["icao", "iata", "name", "city"]
    list_filter = ["country"]
