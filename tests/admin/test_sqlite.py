from __future__ import annotations

import json
import os
import subprocess
import sys

from tests import stores


def test_the_admin_needs_no_postgresql_where_all_jobs_are_in_redis() -> None:
    url = stores.valkey()
    stores.empty(url)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.sqlite.settings",
        "DJQUEUE_SQLITE": ":memory:",
        "REDIS_URL": url,
    }

    done = subprocess.run(
        [sys.executable, "-m", "tests.admin.sqlite_project"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert {status for status, _ in seen.values()} == {200, 302}
    assert seen["djqueue/job/"] == [200, True]
    assert seen["page"][1].startswith("/admin/djqueue/job/")
    assert seen["cancel"] == [302, "cancelled"]
