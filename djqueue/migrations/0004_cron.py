"""The crontab."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("djqueue", "0003_unique"),
    ]

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
                        help_text="Empty: the task's.",
                        max_length=128,
                        verbose_name="queue",
                    ),
                ),
                (
                    "priority",
                    models.SmallIntegerField(
                        blank=True, help_text="Empty: the task's.", null=True, verbose_name="priority"
                    ),
                ),
                (
                    "expression",
                    models.CharField(
                        help_text=(
                            "Minute, hour, day of month, month, day of week, and perhaps second; or @hourly, @daily, @weekly, "
                            "@monthly, @yearly, @reboot."
                        ),
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
                            ("skip", "leave them out"),
                            ("latest", "run the latest"),
                            ("all", "run all in the window"),
                        ],
                        db_default="latest",
                        default="latest",
                        help_text="What runs of the times that passed while no scheduler was there.",
                        max_length=6,
                        verbose_name="missed times",
                    ),
                ),
                (
                    "misfire_window_seconds",
                    models.IntegerField(
                        db_default=3600,
                        default=3600,
                        help_text="Seconds; for “run all”.",
                        verbose_name="window of missed times",
                    ),
                ),
                (
                    "overlap",
                    models.CharField(
                        choices=[
                            ("allow", "run beside it"),
                            ("skip", "leave this time out"),
                            ("queue", "wait for its end"),
                            ("cancel_running", "cancel it and run"),
                        ],
                        db_default="allow",
                        default="allow",
                        help_text="When a time comes while the previous job of the entry is not finished.",
                        max_length=14,
                        verbose_name="overlap",
                    ),
                ),
                (
                    "jitter_seconds",
                    models.IntegerField(
                        db_default=0,
                        default=0,
                        help_text="Each run begins up to so many seconds later, by chance.",
                        verbose_name="jitter",
                    ),
                ),
                (
                    "start_at",
                    models.DateTimeField(
                        blank=True, help_text="Not before this time.", null=True, verbose_name="start"
                    ),
                ),
                (
                    "end_at",
                    models.DateTimeField(blank=True, help_text="Not after this time.", null=True, verbose_name="end"),
                ),
                (
                    "max_runs",
                    models.IntegerField(
                        blank=True, help_text="Empty: without end.", null=True, verbose_name="number of runs"
                    ),
                ),
                (
                    "code",
                    models.JSONField(
                        blank=True,
                        help_text="What the code said when last read.",
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
                        help_text="When the code ceased to have it.", null=True, verbose_name="disabled at"
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
                "required_db_vendor": "postgresql",
                "verbose_name": "cron entry",
                "verbose_name_plural": "cron entries",
                "permissions": [
                    ("pause_cronentry", "Can pause and resume cron entries"),
                    ("run_cronentry", "Can run cron entries now"),
                ],
            },
        ),
        migrations.CreateModel(
            name="CronTick",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("nominal_at", models.DateTimeField(help_text="Empty: run by hand.", null=True, verbose_name="time")),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="acted upon at"
                    ),
                ),
                ("outcome", models.CharField(max_length=8, verbose_name="outcome")),
                ("reason", models.CharField(db_default="", max_length=255, verbose_name="reason")),
                ("job_id", models.BigIntegerField(null=True, verbose_name="job")),
                (
                    "missed_from",
                    models.DateTimeField(
                        help_text="The first of the times before it that passed and did not run.",
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
                "required_db_vendor": "postgresql",
                "verbose_name": "cron tick",
                "verbose_name_plural": "cron ticks",
                "indexes": [
                    models.Index(fields=["entry", "-id"], name="djqueue_crontick_history"),
                    models.Index(fields=["at"], name="djqueue_crontick_at"),
                ],
                "constraints": [models.UniqueConstraint(fields=("entry", "nominal_at"), name="djqueue_crontick_once")],
            },
        ),
    ]
