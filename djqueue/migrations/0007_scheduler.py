"""What the code of each scheduler says about the crontab."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("djqueue", "0006_outbox"),
    ]

    operations = [
        migrations.CreateModel(
            name="Scheduler",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                (
                    "entries",
                    models.JSONField(
                        db_default={}, help_text="Name → fingerprint of what the code says.", verbose_name="entries"
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="started at"
                    ),
                ),
                (
                    "declared_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="declared at"
                    ),
                ),
            ],
            options={
                "verbose_name": "scheduler",
                "verbose_name_plural": "schedulers",
                "required_db_vendor": "postgresql",
            },
        ),
    ]
