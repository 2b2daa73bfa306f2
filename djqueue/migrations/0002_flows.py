"""The tables of workflows and batches. Nothing changes in the tables of jobs."""

from typing import Any

import django.db.models.functions.datetime
from django.db import migrations, models

# A flow's counters change often: half of each page stays free for the new row versions. Rows of the last two tables live for milliseconds.
STORAGE = (
    """
    ALTER TABLE djqueue_flow SET (
        fillfactor = 50,
        autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
    )
    """,
    """
    ALTER TABLE djqueue_flowcount SET (
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
    )
    """,
    """
    ALTER TABLE djqueue_flowevent SET (
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0
    )
    """,
)


def set_storage(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for statement in STORAGE:
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [
        ("djqueue", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="FlowCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("flow_id", models.BigIntegerField(verbose_name="workflow")),
                ("added", models.IntegerField(db_default=0, verbose_name="added")),
                ("completed", models.IntegerField(db_default=0, verbose_name="completed")),
                ("cancelled", models.IntegerField(db_default=0, verbose_name="cancelled")),
                ("discarded", models.IntegerField(db_default=0, verbose_name="discarded")),
            ],
            options={
                "verbose_name": "workflow count",
                "verbose_name_plural": "workflow counts",
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="FlowEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=8, verbose_name="kind")),
                ("subject_id", models.BigIntegerField(help_text="A job or a workflow.", verbose_name="subject")),
                (
                    "state",
                    models.CharField(help_text="How the subject ended.", max_length=9, null=True, verbose_name="state"),
                ),
                ("detail", models.JSONField(null=True, verbose_name="detail")),
            ],
            options={
                "verbose_name": "workflow event",
                "verbose_name_plural": "workflow events",
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="Dependency",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "upstream_id", "downstream_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("upstream_id", models.BigIntegerField(verbose_name="upstream")),
                ("downstream_id", models.BigIntegerField(verbose_name="downstream")),
                (
                    "rule",
                    models.CharField(
                        choices=[("s", "success"), ("i", "any_end"), ("d", "no_result"), ("f", "failure")],
                        max_length=1,
                        verbose_name="rule",
                    ),
                ),
            ],
            options={
                "verbose_name": "dependency",
                "verbose_name_plural": "dependencies",
                "required_db_vendor": "postgresql",
                "indexes": [models.Index(fields=["downstream_id"], name="djqueue_dependency_downstream")],
            },
        ),
        migrations.CreateModel(
            name="Flow",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                (
                    "whole_id",
                    models.BigIntegerField(
                        help_text="The workflow or batch that this one is a part of.", null=True, verbose_name="whole"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("workflow", "workflow"), ("batch", "batch"), ("part", "part")],
                        db_default="workflow",
                        max_length=8,
                        verbose_name="kind",
                    ),
                ),
                ("name", models.CharField(db_default="", max_length=255, verbose_name="name")),
                (
                    "on_failure",
                    models.CharField(
                        choices=[("go_on", "go_on"), ("cancel", "cancel")],
                        db_default="go_on",
                        max_length=8,
                        verbose_name="on failure",
                    ),
                ),
                (
                    "is_open",
                    models.BooleanField(
                        db_default=False, help_text="Whether jobs may still be added.", verbose_name="open"
                    ),
                ),
                (
                    "is_awaited",
                    models.BooleanField(
                        db_default=False, help_text="Whether jobs wait for its end.", verbose_name="awaited"
                    ),
                ),
                ("total", models.IntegerField(db_default=0, verbose_name="jobs")),
                ("completed", models.IntegerField(db_default=0, verbose_name="completed")),
                (
                    "cancelled",
                    models.IntegerField(db_default=0, help_text="Cancelled or deleted.", verbose_name="cancelled"),
                ),
                ("discarded", models.IntegerField(db_default=0, verbose_name="discarded")),
                (
                    "first_id",
                    models.BigIntegerField(
                        db_default=0,
                        help_text="The ids of its jobs lie between this and the last one.",
                        verbose_name="first job",
                    ),
                ),
                ("last_id", models.BigIntegerField(db_default=0, verbose_name="last job")),
                (
                    "inserted_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="inserted at"
                    ),
                ),
                (
                    "failed_at",
                    models.DateTimeField(
                        help_text="When the first of its jobs did not complete.", null=True, verbose_name="failed at"
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                ("meta", models.JSONField(db_default={}, verbose_name="meta")),
                ("unique_key", models.CharField(max_length=64, null=True, verbose_name="unique key")),
            ],
            options={
                "verbose_name": "workflow",
                "verbose_name_plural": "workflows",
                "required_db_features": ["supports_partial_indexes"],
                "required_db_vendor": "postgresql",
                "indexes": [
                    models.Index(
                        condition=models.Q(("finished_at__isnull", True), ("whole_id__isnull", False)),
                        fields=["whole_id"],
                        name="djqueue_flow_unfinished",
                    ),
                    models.Index(
                        condition=models.Q(("whole_id__isnull", True)),
                        fields=["finished_at"],
                        name="djqueue_flow_finished",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("finished_at__isnull", True), ("unique_key__isnull", False)),
                        fields=("unique_key",),
                        name="djqueue_flow_unique",
                    )
                ],
            },
        ),
        migrations.RunPython(set_storage, migrations.RunPython.noop, elidable=False),
    ]
