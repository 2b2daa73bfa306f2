"""The outbox of backends whose jobs live outside of the database. The only table of djqueue on other databases than PostgreSQL."""

import django.db.models.functions.datetime
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("djqueue", "0005_one_constraint"),
    ]

    operations = [
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "backend",
                    models.CharField(
                        help_text="The entry of TASKS that they are for.", max_length=255, verbose_name="backend"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="created at"
                    ),
                ),
                ("text", models.TextField(verbose_name="text")),
            ],
            options={
                "verbose_name": "outbox row",
                "verbose_name_plural": "outbox rows",
                "indexes": [models.Index(fields=["created_at"], name="djqueue_outboxrow_created")],
            },
        ),
    ]
