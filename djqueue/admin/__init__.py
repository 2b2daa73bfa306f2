"""The admin: jobs, queues, workers and the crontab.

::

    sources.py      what the pages read: one source per store, through the verbs of its engine
    filters.py      state, queue, task, time and search, as what an engine is asked for
    lists.py        a list as the template shows it: columns, rows, filters, pages
    base.py         what all pages share: the list, and the answer when a store does not respond
    jobs.py         live and finished jobs
    detail.py       the page of a job, with timeline.py (what happened when) and diagnosis.py (why it does not run now)
    missing.py      the page of a job that does not exist
    control.py      retry, cancel, discard and delete jobs, with audit.py (the log) and reasons.py
    queues.py       the queues, with pausing.py (pause and resume)
    workers.py      the workers
    cron.py         the crontab, the only part that can be written, with cron_form.py
    formatting.py   durations, times and JSON as text

Two things shape it. There may be millions of jobs, so no page counts, sorts or scans all of them: lists are read along an index
and never load whole arguments, results or errors; a search that finds little is stopped, shows what it found, and can be
continued. And rows contain untrusted data, so nothing of a row is marked safe, and templates get strings, never the values:
they would call callables and follow attributes.

Jobs cannot be added or changed by a form: a user who can write a job decides what code runs. Each action on a job or a queue has
a permission of its own, goes through the verbs of the engine after a confirmation, and is logged. An entry of the crontab can be
written, with the permission for it, as far as it names a registered task.
"""

from __future__ import annotations

from djqueue.admin.cron import CronEntryAdmin
from djqueue.admin.jobs import FinishedJobAdmin, JobAdmin
from djqueue.admin.queues import QueueAdmin
from djqueue.admin.sources import job_url
from djqueue.admin.workers import WorkerAdmin

__all__ = ["CronEntryAdmin", "FinishedJobAdmin", "JobAdmin", "QueueAdmin", "WorkerAdmin", "job_url"]
