"""Permissions for what people may do to jobs and queues in the admin."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("djqueue", "0001_initial")]

    operations = [
        migrations.AlterModelOptions(
            name="job",
            options={
                "permissions": [
                    ("retry_job", "Can retry jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("discard_job", "Can discard jobs"),
                ],
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        migrations.AlterModelOptions(
            name="queue",
            options={
                "permissions": [("pause_queue", "Can pause and resume queues")],
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
            },
        ),
    ]
