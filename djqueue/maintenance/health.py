"""Assess the health of a store: what is wrong, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass

from djqueue.jobs.health import Health, Inspection, ParkedJob, QueueHealth, TableHealth, VacuumBlocker
from djqueue.jobs.silence import REPORTED_SILENT_SECONDS

MAX_AGE_SECONDS = 300.0
"""An available job that has waited for longer means that the workers do not keep up."""
OVERDUE_SECONDS = 10.0
LOOP_SECONDS = {"stager": 30.0, "lifeline": 30.0, "pruner": 3600.0, "relay": 60.0, "scheduler": 60.0}
"""Maximum age of the last run of each service of the leader."""
_OPTIONAL = ("relay", "scheduler")
"""Services that not every leader has."""
CRONTAB_SECONDS = 60.0
OUTBOX_SECONDS = 60.0
SNAPSHOT_SECONDS = 300.0
MANY_TRANSACTIONS = 100_000
MANY_DEAD = 100_000
FULL = 0.1


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    is_ok: bool
    text: str
    """What was found, in a sentence."""
    advice: str = ""
    """What to do about it; dropped if nothing is wrong."""
    is_fatal: bool = True
    """Whether jobs are not processed because of it. Otherwise it is a warning, and a probe passes."""

    def __post_init__(self) -> None:
        if self.is_ok:
            object.__setattr__(self, "advice", "")

    @property
    def level(self) -> str:
        return "ok" if self.is_ok else "bad" if self.is_fatal else "warning"


def judge(health: Health, *, max_age_seconds: float = MAX_AGE_SECONDS) -> list[Finding]:
    history = health.history_rows or 0
    return [
        *_refusals(health.server),
        *(_queue(queue, max_age_seconds) for queue in health.queues),
        *map(_parked, health.parked),
        *_workers(health),
        *_leader(health),
        _stage(health),
        *_crontab(health),
        *(_tables(health.tables, history) if health.tables else ()),
        *(_server(health.server, history) if health.server else ()),
    ]


def _tables(tables: TableHealth, history: int) -> list[Finding]:
    return [*_blockers(tables), _dead_rows(tables), _sizes(tables, history), _notifications(tables)]


def judge_outbox(backend: str, oldest_seconds: float | None) -> Finding:
    """Assess the outbox of a backend, in which jobs wait for its store."""
    name = f"outbox of {backend}"
    if oldest_seconds is None:
        return Finding(name, True, "Nothing waits.")
    advice = "The leader sends it as soon as the server accepts it. Look for outbox.failure in the log of the leader."
    return Finding(
        name, oldest_seconds <= OUTBOX_SECONDS, f"Its oldest row has waited for {span(oldest_seconds)}.", advice
    )


def _warning(name: str, text: str, advice: str = "") -> Finding:
    return Finding(name, False, text, advice, is_fatal=False)


def _refusals(server: Inspection | None) -> list[Finding]:
    """Return what prevents jobs from being enqueued, first: other checks may find nothing wrong in an empty queue."""
    concerns = server.concerns if server else ()
    return [Finding("server", False, one.text, one.hint) for one in concerns if one.keeps_jobs_out]


def _queue(queue: QueueHealth, max_age: float) -> Finding:
    age = queue.oldest_available_seconds
    name = f"queue {queue.queue}"
    if queue.is_paused:
        waits = "nothing waits" if age is None else f"its oldest job has waited for {span(age)}"
        advice = "Resume it in the admin or with manage.py queuectl resume."
        return _warning(name, f"It is paused; {waits}.", advice)
    if age is None:
        return Finding(name, True, "Nothing waits.")
    if not queue.is_served:
        text = f"No live worker serves it, and its oldest job has waited for {span(age)}."
        return Finding(name, False, text, f"Start one: manage.py runworker --queues {queue.queue}")
    advice = (
        "Jobs are enqueued faster than they run. Start more workers or raise --concurrency, and look for slow jobs."
        " If none runs at all, look for worker.hung, job.lingering and service.failure in the log of its workers."
    )
    return Finding(name, age <= max_age, f"Its oldest job has waited for {span(age)}.", advice)


def _parked(job: ParkedJob) -> Finding:
    advice = "Correct the row, delete the job, or start workers that know its task."
    return _warning(f"job {job.id}", f"Job {job.id} ({job.task}) is parked: {job.reason}", advice)


def _workers(health: Health) -> list[Finding]:
    living = [one for one in health.workers if not one.is_dead]
    silent = [one for one in living if one.silent_seconds > REPORTED_SILENT_SECONDS]
    count = len(living) - len(silent)
    advice = "Its machine is down, disconnected or frozen. Any other worker will rescue its jobs; start one if there is none."
    is_led = health.leader_seconds is not None
    findings = [
        Finding(
            f"worker {one.name}", False, f"Its last heartbeat was {span(one.silent_seconds)} ago.", advice, not is_led
        )
        for one in silent
    ]
    text = f"{count or 'No'} worker{' is' if count <= 1 else 's are'} alive."
    return [*findings, Finding("workers", count > 0, text, "Start one: manage.py runworker")]


def _leader(health: Health) -> list[Finding]:
    if health.leader_seconds is None:
        text = "No worker is the leader: delayed jobs and retries do not start, and lost jobs are not rescued."
        advice = "Start a worker: manage.py runworker. One of them becomes the leader within seconds."
        return [Finding("leader", False, text, advice)]
    findings = [Finding("leader", True, f"There has been a leader for {span(health.leader_seconds)}.")]
    advice = "The leader's log has the reason. Restart its process to make another worker the leader."
    for name, limit in LOOP_SECONDS.items():
        if name in _OPTIONAL and name not in health.loops:
            continue
        # Under a new leader it may not have finished its first run.
        age = min(health.loops.get(name, health.leader_seconds), health.leader_seconds)
        findings.append(Finding(name, age <= limit, f"It last ran {span(age)} ago.", advice, name != "pruner"))
    return findings


def _stage(health: Health) -> Finding:
    overdue = health.overdue_seconds
    if overdue is None or overdue <= OVERDUE_SECONDS:
        return Finding("delayed jobs", True, "No job is overdue.")
    text = f"A job has been due for {span(overdue)} and was not made available."
    if health.leader_seconds is None:
        advice = "Start a worker. It becomes the leader and makes due jobs available."
    else:
        advice = "Look for service=stager in the log of the leader."
    return Finding("delayed jobs", False, text, advice)


def _crontab(health: Health) -> list[Finding]:
    if not health.cron_entries:
        return []
    what = f"{health.cron_entries} active {'entry' if health.cron_entries == 1 else 'entries'}"
    silent = health.scheduler_seconds
    advice = "Start a worker without --no-cron, or manage.py runcron. If one is running, look for service=scheduler in its log."
    if silent is None:
        return [Finding("crontab", False, f"No scheduler runs for {what}.", advice)]
    text = f"{what}; the scheduler last ran {span(silent)} ago."
    return [Finding("crontab", silent <= CRONTAB_SECONDS, text, advice)]


def _server(server: Inspection, history: int) -> list[Finding]:
    about = "; ".join(f"{name}: {value}" for name, value in server.about.items())
    return [
        Finding("server", True, f"{server.server}{f' ({about})' if about else ''}."),
        Finding("history", True, f"{history:,} finished job{' is' if history == 1 else 's are'} kept."),
        *(
            Finding("server", False, one.text, one.hint, one.is_fatal)
            for one in server.concerns
            if not one.keeps_jobs_out
        ),
    ]


def _blockers(tables: TableHealth) -> list[Finding]:
    if not tables.blockers:
        return [Finding("snapshots", True, "Nothing prevents VACUUM from removing dead rows.")]
    return [
        Finding(
            "snapshots",
            not _is_old(one),
            f"{one.kind.capitalize()} {one.name}: {one.age_transactions:,} transactions old"
            + ("." if one.age_seconds is None else f", for {span(one.age_seconds)}."),
            _blocker_advice(one),
            is_fatal=False,
        )
        for one in tables.blockers
    ]


def _is_old(one: VacuumBlocker) -> bool:
    if one.age_seconds is not None:
        return one.age_seconds > SNAPSHOT_SECONDS
    return one.age_transactions > MANY_TRANSACTIONS


def _blocker_advice(one: VacuumBlocker) -> str:
    keeps = "Until it ends, VACUUM cannot remove what finished jobs leave behind."
    if one.kind == "replication slot":
        return f"{keeps} Start its consumer, or drop it: SELECT pg_drop_replication_slot('…')"
    if one.kind == "prepared transaction":
        return f"{keeps} End it with COMMIT PREPARED or ROLLBACK PREPARED."
    return (
        f"{keeps} End it with SELECT pg_terminate_backend(pid), let reports run on a replica without hot_standby_feedback,"
        " and set idle_in_transaction_session_timeout."
    )


def _dead_rows(tables: TableHealth) -> Finding:
    if tables.dead_rows is None or tables.live_rows is None:
        return _warning("dead rows", "The statistics could not be read in time.")
    vacuumed = "not known" if tables.vacuumed_seconds is None else f"{span(tables.vacuumed_seconds)} ago"
    text = f"{tables.dead_rows:,} dead rows, {tables.live_rows:,} unfinished jobs; last vacuum: {vacuumed}."
    if not tables.is_autovacuum_on:
        return _warning("dead rows", f"{text} Autovacuum is off.", "ALTER TABLE djqueue_job RESET (autovacuum_enabled)")
    is_ok = tables.dead_rows <= max(MANY_DEAD, 2 * tables.live_rows)
    advice = (
        "Autovacuum does not keep up: a session holds a snapshot (see above), or its workers are busy elsewhere. Raise"
        " autovacuum_max_workers, or run VACUUM djqueue_job."
    )
    return Finding("dead rows", is_ok, text, advice, is_fatal=False)


def _sizes(tables: TableHealth, history: int) -> Finding:
    index, table = tables.fetch_index_bytes, tables.table_bytes
    if index is None or table is None or tables.live_rows is None:
        return _warning("sizes", "The sizes could not be read in time.")
    text = (
        f"Live jobs {size(table)}, their fetch index {size(index)}; history {size(tables.history_bytes or 0)}, about"
        f" {history:,} jobs."
    )
    # An entry takes about 60 bytes, and half-empty pages are normal.
    is_ok = index <= max(64 * 2**20, 300 * tables.live_rows)
    advice = "Shrink the index: REINDEX INDEX CONCURRENTLY djqueue_job_fetch"
    return Finding("sizes", is_ok, text, advice, is_fatal=False)


def _notifications(tables: TableHealth) -> Finding:
    usage = tables.notification_usage
    if usage is None:
        return _warning("notifications", "The notification queue could not be read in time.")
    text = f"The notification queue is {100 * usage:.0f} % full."
    advice = "A listening session has a long transaction open. When the queue is full, commits that notify fail. End that session."
    return Finding("notifications", usage <= FULL, text, advice)


def span(seconds: float) -> str:
    """Format a duration in its largest suitable unit."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}s"
    return f"{max(0.0, seconds):.1f} seconds" if seconds < 10 else f"{seconds:.0f} seconds"


def size(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
