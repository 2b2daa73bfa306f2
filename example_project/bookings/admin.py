from django.contrib import admin

from bookings.models import Booking


@admin.register(Booking)
class BookingAdmin(admin.ModelAdmin):
    list_display = ["reference", "traveller", "origin", "destination", "departs_on", "card", "status"]
    list_filter = ["status", "card"]
    list_select_related = ["origin", "destination"]
    search_fields = ["reference", "traveller"]
    autocomplete_fields = ["origin", "destination"]
    readonly_fields = ["reference", "status", "mailed_at", "charge_job", "ticket_job", "mail_job"]
