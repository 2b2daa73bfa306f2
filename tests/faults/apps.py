from __future__ import annotations

import os
import time
import warnings
from functools import partial
from typing import Any

from django.apps import AppConfig

from djqueue.compat import task_finished
from djqueue.runtime import lingering, supervisor


class FaultsConfig(AppConfig):
    name = "tests.faults"

    def ready(self) -> None:
        """Ask the database something, so that a connection is open before anything of the worker has started."""
        from django.contrib.auth.models import Group

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Group.objects.exists()
        if seconds := float(os.environ.get("DJQUEUE_TEST_RECEIVER", "0")):
            # The slot of a job is free when its receivers have returned; its outcome is stored long before.
            task_finished.connect(partial(_receive, seconds), weak=False)
        if os.environ.get("DJQUEUE_TEST_HASTE"):
            lingering.REPORT_SECONDS, lingering.GIVE_UP_SECONDS = 0.5, 1.0
            supervisor.HUNG_SECONDS = 2.0


def _receive(seconds: float, **_: Any) -> None:
    time.sleep(seconds)
    if path := os.environ.get("DJQUEUE_TEST_RECEIVED"):
        with open(path, "a") as file:
            file.write("received\n")
