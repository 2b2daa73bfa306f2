"""When entries of the crontab are due, and what an entry is. Pure: no tables, no clock, no I/O.

::

    schedule.py     an expression in a time zone, and the next time after a time
    entry.py        Cron (what ``@task(cron=…)`` takes), the definition and the record of an entry, drift
    planning.py     what to do about an entry at a moment: which nominal time runs, which were missed

A *nominal time* is a time that an expression names, whenever it really is acted upon. The next one is computed from the
previous one, never from the clock: a timer that fires early, a clock that is set back and a second scheduler all come to
the same nominal time, and the store takes each only once.
"""

from __future__ import annotations

from djqueue.cron.entry import Cron, CronDefinition, CronEntry, CronTick, Due, NewTick, Ticked
from djqueue.cron.schedule import InvalidSchedule, Schedule

__all__ = [
    "Cron",
    "CronDefinition",
    "CronEntry",
    "CronTick",
    "Due",
    "InvalidSchedule",
    "NewTick",
    "Schedule",
    "Ticked",
]
