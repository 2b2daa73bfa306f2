"""The tables of djqueue.

On PostgreSQL only (``required_db_vendor``): a project on another database keeps its jobs in Redis, and nothing would read these
tables. The option is Django's own and no part of the schema, so it could be added here later without a migration.
"""

import datetime
from typing import Any
import django.db.models.functions.datetime
import uuid
from django.db import migrations, models

# Half of each page of the live table stays free, so that a claim's new row version fits beside the old one (a HOT
# update). The live table is vacuumed by count, not by share, without pauses: its dead rows are many and its size small.
# No statistics on state: ANALYZE of a moment in which nobody was available would make the planner leave the fetch index.
STORAGE = (
    """
    ALTER TABLE djqueue_job SET (
        fillfactor = 50,
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_threshold = 100000, autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 1000
    )
    """,
    "ALTER TABLE djqueue_job ALTER COLUMN state SET STATISTICS 0",
    "ALTER TABLE djqueue_worker SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200)",
    "ALTER TABLE djqueue_leader SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200)",
)


def set_storage(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for statement in STORAGE:
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Leader",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("holder", models.UUIDField()),
                ("term", models.BigIntegerField()),
                ("expires_at", models.DateTimeField()),
                (
                    "elected_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="When this holder took the lead.",
                    ),
                ),
                (
                    "loops",
                    models.JSONField(db_default={}, help_text="When each of the leader's loops last did its work."),
                ),
            ],
            options={
                "required_db_vendor": "postgresql",
                "verbose_name": "leader",
                "verbose_name_plural": "leaders",
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                (
                    "name",
                    models.CharField(max_length=128, primary_key=True, serialize=False, verbose_name="name"),
                ),
                ("paused_at", models.DateTimeField(null=True, verbose_name="paused at")),
                ("paused_by", models.CharField(db_default="", max_length=255, verbose_name="paused by")),
                ("pause_reason", models.TextField(db_default="", verbose_name="reason")),
            ],
            options={
                "required_db_vendor": "postgresql",
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                ("hostname", models.CharField(max_length=255, verbose_name="host")),
                ("pid", models.IntegerField(verbose_name="process id")),
                ("queues", models.JSONField(db_default={}, verbose_name="queues")),
                ("concurrency", models.IntegerField(verbose_name="concurrency")),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="started at"
                    ),
                ),
                (
                    "beat",
                    models.BigIntegerField(
                        db_default=0,
                        help_text="Raised every two seconds while the worker lives.",
                        verbose_name="beat",
                    ),
                ),
                (
                    "beat_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="last beat at"
                    ),
                ),
                ("is_draining", models.BooleanField(db_default=False, verbose_name="draining")),
                (
                    "died_at",
                    models.DateTimeField(
                        help_text="Known to be dead; the row stays until nothing of it is left to rescue.",
                        null=True,
                        verbose_name="died at",
                    ),
                ),
            ],
            options={
                "required_db_vendor": "postgresql",
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
            },
        ),
        migrations.CreateModel(
            name="FinishedJob",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("scheduled", "scheduled"),
                            ("available", "available"),
                            ("executing", "executing"),
                            ("retryable", "retryable"),
                            ("suspended", "suspended"),
                            ("completed", "completed"),
                            ("discarded", "discarded"),
                            ("cancelled", "cancelled"),
                        ],
                        db_default="available",
                        max_length=9,
                        verbose_name="state",
                    ),
                ),
                ("queue", models.CharField(db_default="default", max_length=128, verbose_name="queue")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                ("args", models.JSONField(db_default=[], verbose_name="arguments")),
                ("kwargs", models.JSONField(db_default={}, verbose_name="keyword arguments")),
                (
                    "priority",
                    models.SmallIntegerField(
                        db_default=0, help_text="−100 to 100; higher runs first.", verbose_name="priority"
                    ),
                ),
                (
                    "attempt",
                    models.IntegerField(db_default=0, help_text="How often it was started.", verbose_name="attempt"),
                ),
                ("max_attempts", models.IntegerField(db_default=20, verbose_name="max attempts")),
                (
                    "claim",
                    models.BigIntegerField(
                        db_default=0,
                        help_text="Raised by every fetch; an outcome counts only under its own claim.",
                        verbose_name="claim",
                    ),
                ),
                (
                    "attempted_by",
                    models.UUIDField(
                        db_default=uuid.UUID("00000000-0000-0000-0000-000000000000"),
                        verbose_name="attempted by",
                    ),
                ),
                (
                    "attempted_at",
                    models.DateTimeField(
                        db_default=datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                        verbose_name="attempted at",
                    ),
                ),
                (
                    "inserted_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="inserted at"
                    ),
                ),
                (
                    "ready_at",
                    models.DateTimeField(
                        help_text="When it became available; kept while it executes.",
                        null=True,
                        verbose_name="ready at",
                    ),
                ),
                (
                    "scheduled_at",
                    models.DateTimeField(help_text="Not before this time.", null=True, verbose_name="scheduled at"),
                ),
                (
                    "expires_at",
                    models.DateTimeField(
                        help_text="Not started by then: cancelled.", null=True, verbose_name="expires at"
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        help_text="When the function first began.", null=True, verbose_name="started at"
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                (
                    "errors",
                    models.JSONField(
                        db_default=[],
                        help_text="One object per failed attempt, newest last.",
                        verbose_name="errors",
                    ),
                ),
                ("result", models.JSONField(null=True, verbose_name="result")),
                ("meta", models.JSONField(db_default={}, verbose_name="meta")),
                ("unique_key", models.CharField(max_length=64, null=True, verbose_name="unique key")),
                (
                    "cancel_request",
                    models.JSONField(help_text="Who asked, why and when.", null=True, verbose_name="cancel request"),
                ),
            ],
            options={
                "required_db_vendor": "postgresql",
                "verbose_name": "finished job",
                "verbose_name_plural": "finished jobs",
                "indexes": [models.Index(fields=["finished_at"], name="djqueue_finishedjob_finished")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["completed", "discarded", "cancelled"])),
                        name="djqueue_finishedjob_state",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("scheduled", "scheduled"),
                            ("available", "available"),
                            ("executing", "executing"),
                            ("retryable", "retryable"),
                            ("suspended", "suspended"),
                            ("completed", "completed"),
                            ("discarded", "discarded"),
                            ("cancelled", "cancelled"),
                        ],
                        db_default="available",
                        max_length=9,
                        verbose_name="state",
                    ),
                ),
                ("queue", models.CharField(db_default="default", max_length=128, verbose_name="queue")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                ("args", models.JSONField(db_default=[], verbose_name="arguments")),
                ("kwargs", models.JSONField(db_default={}, verbose_name="keyword arguments")),
                (
                    "priority",
                    models.SmallIntegerField(
                        db_default=0, help_text="−100 to 100; higher runs first.", verbose_name="priority"
                    ),
                ),
                (
                    "attempt",
                    models.IntegerField(db_default=0, help_text="How often it was started.", verbose_name="attempt"),
                ),
                ("max_attempts", models.IntegerField(db_default=20, verbose_name="max attempts")),
                (
                    "claim",
                    models.BigIntegerField(
                        db_default=0,
                        help_text="Raised by every fetch; an outcome counts only under its own claim.",
                        verbose_name="claim",
                    ),
                ),
                (
                    "attempted_by",
                    models.UUIDField(
                        db_default=uuid.UUID("00000000-0000-0000-0000-000000000000"),
                        verbose_name="attempted by",
                    ),
                ),
                (
                    "attempted_at",
                    models.DateTimeField(
                        db_default=datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                        verbose_name="attempted at",
                    ),
                ),
                (
                    "inserted_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="inserted at"
                    ),
                ),
                (
                    "ready_at",
                    models.DateTimeField(
                        help_text="When it became available; kept while it executes.",
                        null=True,
                        verbose_name="ready at",
                    ),
                ),
                (
                    "scheduled_at",
                    models.DateTimeField(help_text="Not before this time.", null=True, verbose_name="scheduled at"),
                ),
                (
                    "expires_at",
                    models.DateTimeField(
                        help_text="Not started by then: cancelled.", null=True, verbose_name="expires at"
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        help_text="When the function first began.", null=True, verbose_name="started at"
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                (
                    "errors",
                    models.JSONField(
                        db_default=[],
                        help_text="One object per failed attempt, newest last.",
                        verbose_name="errors",
                    ),
                ),
                ("result", models.JSONField(null=True, verbose_name="result")),
                ("meta", models.JSONField(db_default={}, verbose_name="meta")),
                ("unique_key", models.CharField(max_length=64, null=True, verbose_name="unique key")),
                (
                    "cancel_request",
                    models.JSONField(help_text="Who asked, why and when.", null=True, verbose_name="cancel request"),
                ),
            ],
            options={
                "required_db_features": ["supports_partial_indexes"],
                "required_db_vendor": "postgresql",
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "indexes": [
                    models.Index(
                        condition=models.Q(("ready_at__isnull", False)),
                        fields=["queue", "-priority", "ready_at", "id"],
                        name="djqueue_job_fetch",
                    ),
                    models.Index(
                        condition=models.Q(("ready_at__isnull", True)),
                        fields=["scheduled_at", "id"],
                        name="djqueue_job_stage",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["scheduled", "available", "executing", "retryable", "suspended"])
                        ),
                        name="djqueue_job_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ready_at__isnull", False), ("state__in", ["available", "executing"])),
                            models.Q(
                                ("ready_at__isnull", True), ("state__in", ["scheduled", "retryable", "suspended"])
                            ),
                            _connector="OR",
                        ),
                        name="djqueue_job_ready",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__range", (-100, 100))), name="djqueue_job_priority"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("unique_key__isnull", False)),
                        fields=("unique_key",),
                        name="djqueue_job_unique",
                    ),
                ],
            },
        ),
        migrations.RunPython(set_storage, migrations.RunPython.noop, elidable=False),
    ]
