"""Walk through the admin of a project that has neither PostgreSQL nor its driver, and print what was found."""

from __future__ import annotations

import json

import django


def main() -> None:
    django.setup()

    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client
    from django.test.utils import setup_test_environment

    from djqueue.admin import job_url
    from tests.app.tasks import noop

    setup_test_environment()
    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    id = int(noop.enqueue(1).id)

    seen = {}
    for path in ("", *(f"djqueue/{model}/" for model in ("job", "finishedjob", "queue", "worker", "cronentry"))):
        response = client.get(f"/admin/{path}")
        seen[path] = (response.status_code, "tests.app.tasks" in response.content.decode())
    seen["page"] = (client.get(job_url(id)).status_code, job_url(id))
    values = {"action": "cancel_jobs", "index": "0", "_selected_action": [id], "confirmed": "yes"}
    seen["cancel"] = (client.post("/admin/djqueue/job/", values).status_code, noop.get_result(str(id)).job.state)
    seen["history"] = (client.get(f"/admin/djqueue/job/default_2F{id}/history/").status_code, True)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
