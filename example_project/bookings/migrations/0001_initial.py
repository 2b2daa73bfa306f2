import django.db.models.deletion
from django.db import migrations, models

import bookings.models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("airports", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Booking",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                (
                    "reference",
                    models.CharField(default=bookings.models.new_reference, editable=False, max_length=6, unique=True),
                ),
                ("traveller", models.CharField(max_length=80, verbose_name="your name")),
                ("email", models.EmailField(max_length=254, verbose_name="e-mail address")),
                ("departs_on", models.DateField(verbose_name="departure")),
                (
                    "card",
                    models.CharField(
                        choices=[
                            ("4242", "4242 4242 4242 4242: works"),
                            (
                                "4500",
                                "4500 0000 0000 0002: the bank is busy at first, then it works (a retry)",
                            ),
                            ("4013", "4013 0000 0000 0006: has expired (the job is discarded)"),
                        ],
                        default="4242",
                        max_length=4,
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("new", "New"),
                            ("paid", "Paid"),
                            ("refused", "Refused"),
                            ("confirmed", "Confirmed"),
                        ],
                        default="new",
                        editable=False,
                        max_length=9,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "ticket",
                    models.CharField(blank=True, help_text="Name of the file below MEDIA_ROOT.", max_length=100),
                ),
                ("mailed_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("charge_job", models.CharField(blank=True, editable=False, max_length=20)),
                ("ticket_job", models.CharField(blank=True, editable=False, max_length=20)),
                ("mail_job", models.CharField(blank=True, editable=False, max_length=20)),
                ("demo_run", models.CharField(blank=True, db_index=True, editable=False, max_length=20)),
                (
                    "destination",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="arrivals",
                        to="airports.airport",
                        verbose_name="to",
                    ),
                ),
                (
                    "origin",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="departures",
                        to="airports.airport",
                        verbose_name="from",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
    ]
