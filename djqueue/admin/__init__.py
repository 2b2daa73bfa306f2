"""The admin: jobs, queues and workers, to look at.

::

    stores.py       where the jobs of a page live: in tables.py, or behind an engine, rows.py
    base.py         what all pages share, and what they say when a store does not answer
    lists.py        lists of what an engine tells
    changelist.py   the list of jobs in tables: keyset pages, bounded counts, searches that cannot hang
    filters.py      state, queue, task, time, and the search
    jobs.py         live and finished jobs
    detail.py       one job: its page, with timeline.py (what happened when) and situation.py (why it does not run now)
    control.py     retry, cancel, discard and delete jobs, one or all that match
    queues.py       what waits where, and who serves it
    pausing.py      pause and resume queues
    workers.py      who is alive
    cron.py         the crontab, the one thing here that can be written
    words.py        durations, times and JSON for people

Two things shape it. There may be millions of jobs, so no page counts, sorts or scans all of them: the lists of tables are
read along an index and never load arguments, results or errors; a search that finds little is stopped after a time,
shows what it found among the newest, and can be continued from there. And rows hold what strangers sent, so
nothing of a row is ever marked safe, and templates get strings made of it, never the values: they would call
callables and follow attributes.

Jobs cannot be added or changed here by a form: whoever may write a job decides what code runs. What people may do to a
job or a queue has a permission of its own each, goes through the engine's verbs after a page that asks, and is logged.
An entry of the crontab can be written, with the permission for it, as far as it names a registered task.
"""

from __future__ import annotations

from djqueue.admin.cron import CronEntryAdmin
from djqueue.admin.detail import job_url
from djqueue.admin.jobs import FinishedJobAdmin, JobAdmin
from djqueue.admin.queues import QueueAdmin
from djqueue.admin.workers import WorkerAdmin

__all__ = ["CronEntryAdmin", "FinishedJobAdmin", "JobAdmin", "QueueAdmin", "WorkerAdmin", "job_url"]
