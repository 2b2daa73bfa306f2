from __future__ import annotations

import itertools
import time
import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from djqueue.cron import InvalidSchedule, Schedule

SECOND = timedelta(seconds=1)


def run(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    schedule = Schedule(expression, zone)
    found = []
    at = schedule.next_after(start - timedelta(microseconds=1))
    while at <= end:
        found.append(at)
        at = schedule.next_after(at)
    return found


# What fires on the day of the change and in the hours around it, as clocks there show it with their distance from UTC.
# New York: at 2:00 on to 3:00, at 2:00 back to 1:00. London: at 1:00 on to 2:00, at 2:00 back to 1:00.
# Lord Howe: at 2:00 on to 2:30, at 2:00 back to 1:30.
CHANGES = [
    # fixed
    ("30 2 * * *", "America/New_York", "2026-03-08", ["03:00-04"]),
    ("30 1 * * *", "America/New_York", "2026-11-01", ["01:30-04"]),
    ("0 2,3 * * *", "America/New_York", "2026-03-08", ["03:00-04"]),
    ("30 1,2,3 * * *", "America/New_York", "2026-03-08", ["01:30-05", "03:00-04", "03:30-04"]),
    ("0 3 * * *", "America/New_York", "2026-11-01", ["03:00-05"]),
    ("30 1 * * *", "Europe/London", "2026-03-29", ["02:00+01"]),
    ("30 1 * * *", "Europe/London", "2026-10-25", ["01:30+01"]),
    ("0 1 * * *", "Europe/London", "2026-03-29", ["02:00+01"]),
    ("0 2 * * *", "Europe/London", "2026-10-25", ["02:00+00"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["02:30+11"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05", ["01:45+11"]),
    ("30 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["02:30+11"]),
    ("30 1 * * * 15", "Europe/London", "2026-10-25", ["01:30:15+01"]),
    ("@daily", "Europe/London", "2026-03-29", ["00:00+00"]),
    # hourly and */n
    ("0 0-4 * * *", "America/New_York", "2026-03-08", ["00:00-05", "01:00-05", "03:00-04", "04:00-04"]),
    ("0 * * * *", "America/New_York", "2026-03-08", ["00:00-05", "01:00-05", "03:00-04", "04:00-04"]),
    (
        "@hourly",
        "America/New_York",
        "2026-11-01",
        ["00:00-04", "01:00-04", "01:00-05", "02:00-05", "03:00-05", "04:00-05"],
    ),
    ("0 * * * *", "Europe/London", "2026-03-29", ["00:00+00", "02:00+01", "03:00+01", "04:00+01"]),
    (
        "0 * * * *",
        "Europe/London",
        "2026-10-25",
        ["00:00+01", "01:00+01", "01:00+00", "02:00+00", "03:00+00", "04:00+00"],
    ),
    ("*/30 1 * * *", "Europe/London", "2026-10-25", ["01:00+01", "01:30+01", "01:00+00", "01:30+00"]),
    ("0 * * * *", "Australia/Lord_Howe", "2026-10-04", ["00:00+10:30", "01:00+10:30", "03:00+11", "04:00+11"]),
    (
        "0 * * * *",
        "Australia/Lord_Howe",
        "2026-04-05",
        ["00:00+11", "01:00+11", "02:00+10:30", "03:00+10:30", "04:00+10:30"],
    ),
    ("*/20 1 * * *", "Australia/Lord_Howe", "2026-04-05", ["01:00+11", "01:20+11", "01:40+11", "01:40+10:30"]),
    ("*/20 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["02:40+11"]),
    ("0 */2 * * *", "Australia/Lord_Howe", "2026-04-05", ["00:00+11", "02:00+10:30", "04:00+10:30"]),
]


@pytest.mark.parametrize(("expression", "zone", "day", "expected"), CHANGES)
def test_where_clocks_change(expression: str, zone: str, day: str, expected: list[str]) -> None:
    tz = zoneinfo.ZoneInfo(zone)
    start = datetime.fromisoformat(day).replace(tzinfo=tz)
    end = start.replace(hour=4, minute=30)

    fired = [_short(at.astimezone(tz)) for at in run(expression, zone, start, end)]

    assert fired == expected


def _short(at: datetime) -> str:
    clock = f"{at:%H:%M:%S}".removesuffix(":00")
    return clock + f"{at:%z}"[:3] + (":30" if f"{at:%z}"[3:] == "30" else "")


ZONES = sorted(zone for zone in zoneinfo.available_timezones() if "/" in zone and not zone.startswith("Etc/"))
MINUTES = ["*", "*/5", "*/7", "0", "30", "17", "0,30", "10-20", "59", "5,10,50"]
HOURS = ["*", "*/2", "*/3", "0", "1", "2", "3", "0-5", "1,2,23", "23"]
DAYS = ["*", "*", "1", "15,31", "L", "28-31"]
MONTHS = ["*", "*", "3,10", "mar-apr", "11", "*/2"]
WEEKDAYS = ["*", "*", "sun", "0", "mon-fri", "6,0", "sun#1"]
# With an nth weekday beside days of the month, croniter wants both; cron itself knows no such thing.
expressions = (
    st.tuples(*map(st.sampled_from, (MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS)))
    .filter(lambda fields: "#" not in fields[4] or fields[2] == "*")
    .map(" ".join)
)
moments = st.datetimes(datetime(2019, 1, 1), datetime(2031, 1, 1), timezones=st.just(UTC))


@settings(max_examples=400, deadline=None)
@given(expressions, st.sampled_from(ZONES), moments)
def test_it_agrees_with_cronsim_in_every_zone(expression: str, zone: str, start: datetime) -> None:
    # cronsim steps by whole hours and by whole minutes, and walks past times where a change is of another size.
    assume(zone not in ("Australia/Lord_Howe", "Australia/LHI", "Antarctica/Troll"))
    tz = zoneinfo.ZoneInfo(zone)
    start = start.replace(microsecond=0)
    theirs = CronSim(expression, start.astimezone(tz))
    schedule = Schedule(expression, zone)

    at = start
    for _ in range(12):
        expected = next(theirs).astimezone(UTC)
        at = schedule.next_after(at)
        assert at == expected


@settings(max_examples=60, deadline=None)
@given(expressions, st.sampled_from(ZONES), st.integers(2019, 2029), st.booleans())
def test_around_every_change_of_clocks_it_agrees_with_a_look_at_each_minute(
    expression: str, zone: str, year: int, is_second: bool
) -> None:
    tz = zoneinfo.ZoneInfo(zone)
    changes = _changes(tz, year)
    assume(changes)
    change = changes[-1 if is_second else 0]
    start, end = change - timedelta(hours=5), change + timedelta(hours=5)
    parts = expression.split()
    fired = run(expression, zone, start, end)

    matching = Schedule(expression, "UTC")
    instants = [start + timedelta(minutes=minute) for minute in range(601)]
    walls = [at.astimezone(tz).replace(tzinfo=UTC) for at in instants]
    shown = [
        at
        for at, wall in zip(instants, walls, strict=True)
        if matching.next_after(wall - timedelta(microseconds=1)) == wall
    ]
    if not parts[0].startswith("*") and not parts[1].startswith("*"):
        # Only the first of what is repeated, and once what is skipped.
        shown = [at for at in shown if at.astimezone(tz).fold == 0]
        before, after = (change - SECOND).astimezone(tz).utcoffset(), change.astimezone(tz).utcoffset()
        assert before is not None
        assert after is not None
        gap = after - before
        if gap > timedelta(0):
            wall = (change + before).replace(tzinfo=UTC)
            if matching.next_after(wall - timedelta(microseconds=1)) < wall + gap:
                shown = sorted({*shown, change})
    assert fired == shown


def _changes(tz: zoneinfo.ZoneInfo, year: int) -> list[datetime]:
    """The changes of clocks in a year, to the minute; none of those by days, which move a date."""
    found = []
    at = datetime(year, 1, 1, tzinfo=UTC)
    while at.year == year:
        step = at + timedelta(hours=1)
        if at.astimezone(tz).utcoffset() != step.astimezone(tz).utcoffset():
            minute = at
            while minute.astimezone(tz).utcoffset() == at.astimezone(tz).utcoffset():
                minute += timedelta(minutes=1)
            found.append(minute)
        at = step
    return found


@settings(max_examples=150, deadline=None)
@given(expressions, st.sampled_from(ZONES), moments, st.integers(0, 3 * 86_400))
def test_the_latest_time_is_the_last_of_all(expression: str, zone: str, start: datetime, seconds: int) -> None:
    end = start + timedelta(seconds=seconds)
    times = run(expression, zone, start + timedelta(microseconds=1), end)

    assert Schedule(expression, zone).latest(start, end) == (times[-1] if times else None)


def test_the_latest_of_a_year_of_seconds_is_found_at_once() -> None:
    started = time.perf_counter()

    end = datetime(2026, 7, 1, 12, 0, 0, 500_000, tzinfo=UTC)
    assert Schedule("* * * * * *").latest(end - timedelta(days=365), end) == end.replace(microsecond=0)

    assert time.perf_counter() - started < 1


def test_b39_a_clock_three_milliseconds_early_names_sixty_times_in_an_hour() -> None:
    schedule = Schedule("* * * * *")
    at = datetime(2026, 1, 1, tzinfo=UTC)

    times = []
    for _ in range(60):
        times.append(at := schedule.next_after(at))

    assert times == [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute) for minute in range(1, 61)]


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo"])
@pytest.mark.parametrize("year", [2017, 2018, 2026])
def test_b41_fixed_times_once_a_local_day_and_intervals_at_each_interval(zone: str, year: int) -> None:
    tz = zoneinfo.ZoneInfo(zone)
    start, end = datetime(year, 1, 1, tzinfo=tz), datetime(year + 1, 1, 1, tzinfo=tz) - SECOND
    days = (end.date() - start.date()).days + 1

    assert len({at.astimezone(tz).date() for at in run("30 2 * * *", zone, start, end)}) == days
    assert len(run("30 2 * * *", zone, start, end)) == days
    quarters = run("*/15 * * * *", zone, start, end)
    assert {b - a for a, b in itertools.pairwise(quarters)} == {timedelta(minutes=15)}
    hours = run("0 * * * *", zone, start, end)
    gaps = {b - a for a, b in itertools.pairwise(hours)}
    assert gaps <= {timedelta(hours=1), timedelta(minutes=90)}
    assert (timedelta(minutes=90) in gaps) == (zone == "Australia/Lord_Howe")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("@hourly", "2026-01-01T01:00"),
        ("@daily", "2026-01-02T00:00"),
        ("@midnight", "2026-01-02T00:00"),
        ("@weekly", "2026-01-04T00:00"),
        ("@monthly", "2026-02-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
        ("@ANNUALLY", "2027-01-01T00:00"),
        (" 0  6 * *  MON ", "2026-01-05T06:00"),
        ("0 6 * jun-aug 1-5", "2026-06-01T06:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 l * *", "2026-01-31T00:00"),
        ("0 0 15w * *", "2026-01-15T00:00"),
        ("0 0 * * fri#2", "2026-01-09T00:00"),
        ("0 0 * * l5", "2026-01-30T00:00"),
        ("0 0 * * 7", "2026-01-04T00:00"),
        ("0 22-2 * * *", "2026-01-01T01:00"),
        ("0 0 13 * fri", "2026-01-02T00:00"),
        ("0 0 */2 * mon", "2026-01-05T00:00"),
        ("* * * * * */10", "2026-01-01T00:00:10"),
    ],
)
def test_what_expressions_mean(expression: str, expected: str) -> None:
    at = Schedule(expression).next_after(datetime(2026, 1, 1, tzinfo=UTC))

    assert at == datetime.fromisoformat(expected).replace(tzinfo=UTC)


HOSTILE = [
    "",
    " ",
    "@",
    "@every 5m",
    "@reboot now",
    "60 * * * *",
    "* 24 * * *",
    "0 0 0 * *",
    "0 0 * 13 *",
    "0 0 * * 8",
    "0 0 30 2 *",
    "0 0 31 2,4,6,9,11 *",
    "h h * * *",
    "r r * * *",
    "r(1-5) * * * *",
    "* * * *",
    "* * * * * * 2030",
    "a" * 100_000,
    "1," * 100 + "1 * * * *",
    "0-59/99999 * * * *",
    "1-99999999999999999999 * * * *",
    "*/0 * * * *",
    "*/-1 * * * *",
    "* * * * *\x00",
    "\u0661 * * * *",
    "\uff0a * * * *",
    "0 0 * * mon#6",
    "0 0 32w * *",
    "; DROP TABLE djqueue_job; * * * *",
    "${7*7} * * * *",
    None,
    5,
    ["* * * * *"],
    b"* * * * *",
]


@pytest.mark.parametrize("expression", HOSTILE)
def test_hostile_and_impossible_expressions_are_refused_at_once(expression: object) -> None:
    started = time.perf_counter()

    with pytest.raises(InvalidSchedule) as refusal:
        Schedule(expression)  # type: ignore[arg-type]

    assert time.perf_counter() - started < 0.5
    assert 20 < len(str(refusal.value)) < 600


@pytest.mark.parametrize(
    "expression",
    [
        "*/61 * * * *", "*/9999 * * * *", "0 */25 * * *", "0 0 */32 * *", "0 0 1 */13 *", "0 0 * * */8", "* * * * * */61",
        "10-20/12 * * * *", "50/11 * * * *", "0,*/61 * * * *", "0 0 * * mon-fri/6", "0 0 1 jan-mar/4 *",
    ],
)  # fmt: skip
def test_t54_a_step_that_exceeds_its_range_is_refused(expression: str) -> None:
    with pytest.raises(InvalidSchedule, match="exceeds its range"):
        Schedule(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "*/60 * * * *", "*/59 * * * *", "0 */24 * * *", "0 0 */31 * *", "0 0 1 */12 *", "0 0 * * */7", "* * * * * */60",
        "10-20/11 * * * *", "50/10 * * * *", "0 0 * * mon-fri/5", "0 0 * * fri-mon/2", "0 0 1 jan-mar/2 *",
    ],
)  # fmt: skip
def test_t54_a_step_within_its_range_is_taken(expression: str) -> None:
    assert Schedule(expression).next_after(datetime(2026, 1, 1, tzinfo=UTC)) > datetime(2026, 1, 1, tzinfo=UTC)


@settings(max_examples=300, deadline=timedelta(seconds=1))
@given(st.text(alphabet="0123456789*/,-#@?lwhr monfribjan\t()L", max_size=60))
def test_no_text_does_anything_but_work_or_be_refused(expression: str) -> None:
    try:
        schedule = Schedule(expression, "Europe/Berlin")
        if not schedule.is_reboot:
            assert schedule.next_after(datetime(2026, 1, 1, tzinfo=UTC)) > datetime(2026, 1, 1, tzinfo=UTC)
    except InvalidSchedule:
        pass


@pytest.mark.parametrize(
    "zone", ["", "Nope", "Europe/Nope", "../../etc/passwd", "/etc/passwd", "UTC\0", "Europe", None, 5]
)
def test_what_is_no_time_zone_is_refused(zone: object) -> None:
    with pytest.raises(InvalidSchedule, match="Invalid time zone"):
        Schedule("* * * * *", zone)  # type: ignore[arg-type]


def test_times_beyond_all_calendars_are_refused() -> None:
    for year in (1, 1899, 9001, 9999):
        with pytest.raises(InvalidSchedule):
            Schedule("0 0 1 1 *").next_after(datetime(year, 6, 1, tzinfo=UTC))


@pytest.mark.parametrize("expression", ["61 * * * *", "a;b * * * *"])
def test_an_expression_that_is_refused_is_named(expression: str) -> None:
    with pytest.raises(InvalidSchedule, match=f"^Invalid cron expression {expression[:2]!r}"[:-1]):
        Schedule(expression, "UTC")
