"""The tables of djqueue.

On PostgreSQL only (``required_db_vendor``), but for the outbox: a project on another database keeps its jobs in Redis, and would
not read these tables.
"""

import datetime
from typing import Any
import django.db.models.deletion
import django.db.models.functions.datetime
import uuid
from django.db import migrations, models

# Half of each page of the live table stays free, so that a claim's new row version fits beside the old one (a HOT update). The live
# table is vacuumed by the number of dead rows, not by their share, and without pauses: they are many, and the table is small.
# No statistics on state: if ANALYZE ran while no job was available, the planner would leave the fetch index.
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
            name="CronEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True, verbose_name="name")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                ("args", models.JSONField(blank=True, db_default=[], default=list, verbose_name="arguments")),
                ("kwargs", models.JSONField(blank=True, db_default={}, default=dict, verbose_name="keyword arguments")),
                (
                    "queue",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Empty: that of the task.",
                        max_length=128,
                        verbose_name="queue",
                    ),
                ),
                (
                    "priority",
                    models.SmallIntegerField(
                        blank=True, help_text="Empty: that of the task.", null=True, verbose_name="priority"
                    ),
                ),
                (
                    "expression",
                    models.CharField(
                        help_text="Minute, hour, day of month, month, day of week and optionally second; or @hourly, @daily, @weekly, @monthly, @yearly, @reboot.",  # noqa: E501
                        max_length=200,
                        verbose_name="expression",
                    ),
                ),
                (
                    "timezone",
                    models.CharField(db_default="UTC", default="UTC", max_length=64, verbose_name="time zone"),
                ),
                (
                    "misfire",
                    models.CharField(
                        choices=[
                            ("skip", "skip them"),
                            ("latest", "run the latest"),
                            ("all", "run all within the window"),
                        ],
                        db_default="latest",
                        default="latest",
                        help_text="Which of the times that passed while no scheduler was running are run later.",
                        max_length=6,
                        verbose_name="missed times",
                    ),
                ),
                (
                    "misfire_window_seconds",
                    models.IntegerField(
                        db_default=3600,
                        default=3600,
                        help_text="In seconds; used with “run all within the window”.",
                        verbose_name="window of missed times",
                    ),
                ),
                (
                    "overlap",
                    models.CharField(
                        choices=[
                            ("allow", "run both"),
                            ("skip", "skip this time"),
                            ("queue", "wait until it has ended"),
                            ("cancel_running", "cancel it and run"),
                        ],
                        db_default="allow",
                        default="allow",
                        help_text="What happens when a time comes while the previous job of the entry has not finished.",
                        max_length=14,
                        verbose_name="overlap",
                    ),
                ),
                (
                    "jitter_seconds",
                    models.IntegerField(
                        db_default=0,
                        default=0,
                        help_text="Each run is delayed by a random number of seconds, up to this one.",
                        verbose_name="jitter",
                    ),
                ),
                (
                    "start_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="The entry does not run before this time.",
                        null=True,
                        verbose_name="start",
                    ),
                ),
                (
                    "end_at",
                    models.DateTimeField(
                        blank=True, help_text="The entry does not run after this time.", null=True, verbose_name="end"
                    ),
                ),
                (
                    "max_runs",
                    models.IntegerField(
                        blank=True, help_text="Empty: unlimited.", null=True, verbose_name="number of runs"
                    ),
                ),
                (
                    "code",
                    models.JSONField(
                        blank=True,
                        help_text="The definition in the code when it was last read.",
                        null=True,
                        verbose_name="in the code",
                    ),
                ),
                ("revision", models.BigIntegerField(db_default=1, verbose_name="revision")),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="created at"
                    ),
                ),
                ("created_by", models.CharField(db_default="", max_length=255, verbose_name="created by")),
                (
                    "changed_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="changed at"
                    ),
                ),
                ("changed_by", models.CharField(db_default="", max_length=255, verbose_name="changed by")),
                ("paused_at", models.DateTimeField(null=True, verbose_name="paused at")),
                ("paused_by", models.CharField(db_default="", max_length=255, verbose_name="paused by")),
                ("pause_reason", models.TextField(db_default="", verbose_name="reason")),
                (
                    "disabled_at",
                    models.DateTimeField(
                        help_text="When the entry was removed from the code.", null=True, verbose_name="disabled at"
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                (
                    "planned_from",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="planned from"
                    ),
                ),
                ("next_at", models.DateTimeField(null=True, verbose_name="next time")),
                ("last_nominal_at", models.DateTimeField(null=True, verbose_name="last time")),
                ("last_outcome", models.CharField(db_default="", max_length=255, verbose_name="last outcome")),
                ("runs", models.IntegerField(db_default=0, verbose_name="runs")),
            ],
            options={
                "verbose_name": "cron entry",
                "verbose_name_plural": "cron entries",
                "permissions": [
                    ("pause_cronentry", "Can pause and resume cron entries"),
                    ("run_cronentry", "Can run cron entries now"),
                ],
                "required_db_vendor": "postgresql",
            },
        ),
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
                        help_text="When this holder became the leader.",
                    ),
                ),
                (
                    "loops",
                    models.JSONField(db_default={}, help_text="When each of the leader's loops last did its work."),
                ),
            ],
            options={
                "verbose_name": "leader",
                "verbose_name_plural": "leaders",
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.CharField(max_length=128, primary_key=True, serialize=False, verbose_name="name")),
                ("paused_at", models.DateTimeField(null=True, verbose_name="paused at")),
                ("paused_by", models.CharField(db_default="", max_length=255, verbose_name="paused by")),
                ("pause_reason", models.TextField(db_default="", verbose_name="reason")),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "permissions": [("pause_queue", "Can pause and resume queues")],
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="Scheduler",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                (
                    "entries",
                    models.JSONField(
                        db_default={},
                        help_text="Name → fingerprint of the definition in the code.",
                        verbose_name="entries",
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
                        help_text="Raised every two seconds while the worker is alive.",
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
                        help_text="When the worker was found dead. The row stays until none of its jobs is left to rescue.",
                        null=True,
                        verbose_name="died at",
                    ),
                ),
                (
                    "version",
                    models.CharField(
                        editable=False,
                        help_text="The version of djqueue that the worker runs.",
                        max_length=64,
                        null=True,
                        verbose_name="version",
                    ),
                ),
                (
                    "tasks",
                    models.JSONField(
                        editable=False,
                        help_text="The paths of the tasks that the worker can run.",
                        null=True,
                        verbose_name="tasks",
                    ),
                ),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "required_db_vendor": "postgresql",
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
                (
                    "flow_id",
                    models.BigIntegerField(
                        editable=False,
                        help_text="The workflow or batch that counts this job.",
                        null=True,
                        verbose_name="workflow",
                    ),
                ),
                (
                    "is_awaited",
                    models.BooleanField(
                        editable=False,
                        help_text="Whether other jobs wait for the end of this one.",
                        null=True,
                        verbose_name="awaited",
                    ),
                ),
                (
                    "pending",
                    models.IntegerField(
                        editable=False,
                        help_text="How many jobs or workflows a suspended job still waits for.",
                        null=True,
                        verbose_name="pending",
                    ),
                ),
                (
                    "limit_key",
                    models.CharField(
                        editable=False,
                        help_text="The limit under which this job is counted.",
                        max_length=200,
                        null=True,
                        verbose_name="limit key",
                    ),
                ),
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
                    models.IntegerField(
                        db_default=0, help_text="Number of times that the job was started.", verbose_name="attempt"
                    ),
                ),
                ("max_attempts", models.IntegerField(db_default=20, verbose_name="max attempts")),
                (
                    "claim",
                    models.BigIntegerField(
                        db_default=0,
                        help_text="Raised by every fetch. An outcome is accepted only under the current claim.",
                        verbose_name="claim",
                    ),
                ),
                (
                    "attempted_by",
                    models.UUIDField(
                        db_default=uuid.UUID("00000000-0000-0000-0000-000000000000"), verbose_name="attempted by"
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
                        help_text="When the job became available; kept while it executes.",
                        null=True,
                        verbose_name="ready at",
                    ),
                ),
                (
                    "scheduled_at",
                    models.DateTimeField(
                        help_text="The job does not run before this time.", null=True, verbose_name="scheduled at"
                    ),
                ),
                (
                    "expires_at",
                    models.DateTimeField(
                        help_text="A job that has not started by this time is cancelled.",
                        null=True,
                        verbose_name="expires at",
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        help_text="When the function was first called.", null=True, verbose_name="started at"
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                (
                    "errors",
                    models.JSONField(
                        db_default=[], help_text="One object per failed attempt, newest last.", verbose_name="errors"
                    ),
                ),
                ("result", models.JSONField(null=True, verbose_name="result")),
                ("meta", models.JSONField(db_default={}, verbose_name="meta")),
                ("unique_key", models.CharField(max_length=64, null=True, verbose_name="unique key")),
                (
                    "cancel_request",
                    models.JSONField(
                        help_text="Who requested it, why and when.", null=True, verbose_name="cancel request"
                    ),
                ),
                (
                    "tags",
                    models.JSONField(
                        editable=False,
                        help_text="A list of words by which jobs can be found.",
                        null=True,
                        verbose_name="tags",
                    ),
                ),
                (
                    "fingerprint",
                    models.CharField(
                        editable=False,
                        help_text="Equal for jobs that failed in the same way.",
                        max_length=64,
                        null=True,
                        verbose_name="fingerprint",
                    ),
                ),
            ],
            options={
                "verbose_name": "finished job",
                "verbose_name_plural": "finished jobs",
                "required_db_vendor": "postgresql",
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
                (
                    "flow_id",
                    models.BigIntegerField(
                        editable=False,
                        help_text="The workflow or batch that counts this job.",
                        null=True,
                        verbose_name="workflow",
                    ),
                ),
                (
                    "is_awaited",
                    models.BooleanField(
                        editable=False,
                        help_text="Whether other jobs wait for the end of this one.",
                        null=True,
                        verbose_name="awaited",
                    ),
                ),
                (
                    "pending",
                    models.IntegerField(
                        editable=False,
                        help_text="How many jobs or workflows a suspended job still waits for.",
                        null=True,
                        verbose_name="pending",
                    ),
                ),
                (
                    "limit_key",
                    models.CharField(
                        editable=False,
                        help_text="The limit under which this job is counted.",
                        max_length=200,
                        null=True,
                        verbose_name="limit key",
                    ),
                ),
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
                    models.IntegerField(
                        db_default=0, help_text="Number of times that the job was started.", verbose_name="attempt"
                    ),
                ),
                ("max_attempts", models.IntegerField(db_default=20, verbose_name="max attempts")),
                (
                    "claim",
                    models.BigIntegerField(
                        db_default=0,
                        help_text="Raised by every fetch. An outcome is accepted only under the current claim.",
                        verbose_name="claim",
                    ),
                ),
                (
                    "attempted_by",
                    models.UUIDField(
                        db_default=uuid.UUID("00000000-0000-0000-0000-000000000000"), verbose_name="attempted by"
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
                        help_text="When the job became available; kept while it executes.",
                        null=True,
                        verbose_name="ready at",
                    ),
                ),
                (
                    "scheduled_at",
                    models.DateTimeField(
                        help_text="The job does not run before this time.", null=True, verbose_name="scheduled at"
                    ),
                ),
                (
                    "expires_at",
                    models.DateTimeField(
                        help_text="A job that has not started by this time is cancelled.",
                        null=True,
                        verbose_name="expires at",
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        help_text="When the function was first called.", null=True, verbose_name="started at"
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                (
                    "errors",
                    models.JSONField(
                        db_default=[], help_text="One object per failed attempt, newest last.", verbose_name="errors"
                    ),
                ),
                ("result", models.JSONField(null=True, verbose_name="result")),
                ("meta", models.JSONField(db_default={}, verbose_name="meta")),
                ("unique_key", models.CharField(max_length=64, null=True, verbose_name="unique key")),
                (
                    "cancel_request",
                    models.JSONField(
                        help_text="Who requested it, why and when.", null=True, verbose_name="cancel request"
                    ),
                ),
                (
                    "tags",
                    models.JSONField(
                        editable=False,
                        help_text="A list of words by which jobs can be found.",
                        null=True,
                        verbose_name="tags",
                    ),
                ),
                (
                    "fingerprint",
                    models.CharField(
                        editable=False,
                        help_text="Equal for jobs that failed in the same way.",
                        max_length=64,
                        null=True,
                        verbose_name="fingerprint",
                    ),
                ),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": [
                    ("retry_job", "Can retry jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("discard_job", "Can discard jobs"),
                ],
                "required_db_features": ["supports_partial_indexes"],
                "required_db_vendor": "postgresql",
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
                    models.Index(
                        condition=models.Q(("unique_key__endswith", ":next")),
                        fields=["unique_key"],
                        name="djqueue_job_follow_up",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ready_at__isnull", True), ("state__regex", "^(retryable|scheduled|suspended)$")),
                            models.Q(("ready_at__isnull", False), ("state__regex", "^(available|executing)$")),
                            _connector="OR",
                        ),
                        name="djqueue_job_ready",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("unique_key__isnull", False)),
                        fields=("unique_key",),
                        name="djqueue_job_unique",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "backend",
                    models.CharField(
                        help_text="The entry of TASKS for which the jobs are.", max_length=255, verbose_name="backend"
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
        migrations.CreateModel(
            name="UniqueKey",
            fields=[
                ("key", models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name="key")),
                ("job_id", models.BigIntegerField(verbose_name="job")),
                (
                    "expires_at",
                    models.DateTimeField(
                        help_text="Empty: for as long as the job is kept.", null=True, verbose_name="expires at"
                    ),
                ),
            ],
            options={
                "verbose_name": "unique key",
                "verbose_name_plural": "unique keys",
                "required_db_vendor": "postgresql",
                "indexes": [models.Index(fields=["expires_at", "job_id"], name="djqueue_uniquekey_expires")],
            },
        ),
        migrations.CreateModel(
            name="CronTick",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "nominal_at",
                    models.DateTimeField(
                        help_text="Empty: the entry was run manually.", null=True, verbose_name="time"
                    ),
                ),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="handled at"
                    ),
                ),
                ("outcome", models.CharField(max_length=8, verbose_name="outcome")),
                ("reason", models.CharField(db_default="", max_length=255, verbose_name="reason")),
                ("job_id", models.BigIntegerField(null=True, verbose_name="job")),
                (
                    "missed_from",
                    models.DateTimeField(
                        help_text="The first of the earlier times that were missed and did not run.",
                        null=True,
                        verbose_name="missed from",
                    ),
                ),
                ("by", models.CharField(db_default="", max_length=255, verbose_name="by")),
                (
                    "entry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ticks",
                        to="djqueue.cronentry",
                        verbose_name="entry",
                    ),
                ),
            ],
            options={
                "verbose_name": "cron tick",
                "verbose_name_plural": "cron ticks",
                "required_db_vendor": "postgresql",
                "indexes": [
                    models.Index(fields=["entry", "-id"], name="djqueue_crontick_history"),
                    models.Index(fields=["at"], name="djqueue_crontick_at"),
                ],
                "constraints": [models.UniqueConstraint(fields=("entry", "nominal_at"), name="djqueue_crontick_once")],
            },
        ),
        migrations.RunPython(set_storage, migrations.RunPython.noop, elidable=False),
    ]
