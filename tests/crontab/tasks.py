from __future__ import annotations

from datetime import timedelta

from djqueue import Cron, Unique, task


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


@task(unique=Unique(throttle=timedelta(hours=1)))
def throttled() -> None:
    pass


@task(unique=Unique(period=timedelta(hours=1), scope="live+completed"))
def at_most_hourly() -> None:
    pass


@task(unique=Unique(scope="live+completed"))
def once() -> None:
    pass


@task(unique=Unique(on_running="follow_up"))
def followed() -> None:
    pass


@task(unique=Unique(key="replaced", on_conflict="replace"))
def replaced(a: int) -> None:
    pass


@task(unique=Unique(key="debounced", debounce=timedelta(minutes=5)))
def debounced(a: int) -> None:
    pass
