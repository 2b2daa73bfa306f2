from __future__ import annotations

from djqueue import Cron, task


@task(cron="* * * * * *")
def every_second() -> None:
    pass


@task(cron="* * * * *")
def every_minute() -> None:
    pass


@task(cron=[Cron("0 6 * * mon", args=["all"], name="weekly-report"), "@hourly"], timezone="Europe/Berlin")
def report(scope: str = "new") -> str:
    return scope


@task(cron=Cron("@reboot", name="at-start"))
def at_start() -> None:
    pass


@task(queue_name="mail", priority=5, max_attempts=3)
def plain(a: int, b: int = 0) -> int:
    return a + b
