"""Workflows on a store outside the database."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from djqueue import Batch
from djqueue.exceptions import InvalidWorkflow
from tests import settings as test_settings
from tests import stores
from tests.workflows.tasks import add


@pytest.mark.django_db
def test_a_store_outside_the_database_refuses_a_workflow_in_a_transaction(settings: Any) -> None:
    stores.empty(stores.valkey())
    settings.TASKS = test_settings.tasks("redis")

    for work in (add.s(1) | add.s(2), Batch("rows").add(add, 1)):
        with (
            transaction.atomic(),
            pytest.raises(InvalidWorkflow, match=r"Use transaction\.on_commit\(workflow\.enqueue\)"),
        ):
            work.enqueue()
