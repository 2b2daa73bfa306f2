"""The names that a project may use. A change here is a change of the public API: it belongs into the changelog."""

from __future__ import annotations

import ast
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import djqueue
from djqueue import conf

PACKAGE = Path(djqueue.__file__).parent


def defined(name: str) -> set[str]:
    """The public functions, classes and constants that a module defines itself, and what is in its ``__all__``."""
    module = import_module(name)
    if hasattr(module, "__all__"):
        return set(module.__all__)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def test_djqueue() -> None:
    assert sorted(djqueue.__all__) == DJQUEUE


def test_api() -> None:
    assert sorted(defined("djqueue.api")) == API


def test_crontab() -> None:
    assert sorted(defined("djqueue.crontab")) == CRONTAB


def test_stores() -> None:
    assert sorted(defined("djqueue.stores")) == STORES


def test_backends() -> None:
    assert sorted(defined("djqueue.backends")) == ["PostgresBackend", "QueueBackend", "RedisBackend"]


def test_exceptions() -> None:
    assert sorted(defined("djqueue.exceptions")) == EXCEPTIONS


def test_options() -> None:
    general = {each.name for each in fields(conf.Options)}
    assert sorted(general) == OPTIONS
    for kind, expected in ((conf.PostgresOptions, POSTGRES_OPTIONS), (conf.RedisOptions, REDIS_OPTIONS)):
        assert sorted({each.name for each in fields(kind)} - general) == expected


def test_events() -> None:
    """Every name of an event that stands in the code as a literal."""
    found = {
        node.value
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in ("emit", "span", "_tell_once")
        for node in ast.walk(ast.Module([ast.Expr(each) for each in call.args[:1]], []))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("djqueue.")
    }
    assert sorted(found) == EVENTS


DJQUEUE = [
    "Batch",
    "BulkInterrupted",
    "BulkResult",
    "Cancel",
    "Cron",
    "DependencyFailed",
    "Discard",
    "DjqueueError",
    "DuplicateJob",
    "EngineDenied",
    "EngineUnavailable",
    "EnqueuedBatch",
    "EnqueuedWorkflow",
    "Exponential",
    "ForeignBackend",
    "InvalidArguments",
    "InvalidCron",
    "InvalidJob",
    "InvalidOptions",
    "InvalidResult",
    "InvalidWorkflow",
    "JobTooLarge",
    "JobView",
    "Linear",
    "Result",
    "ResultTooLarge",
    "Retry",
    "Signature",
    "Snooze",
    "StaleClaim",
    "Task",
    "TaskContext",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskTimeout",
    "Unique",
    "UnknownCron",
    "UnknownTask",
    "UnknownTaskResult",
    "UnreadableJob",
    "WorkerLost",
    "Workflow",
    "chain",
    "group",
    "task",
]
API = [
    "BATCH",
    "CONTROLLABLE",
    "COUNT_LIMIT",
    "DEFAULT_ALIAS",
    "Report",
    "acancel",
    "adelete",
    "adiscard",
    "aget_job",
    "apause",
    "aresume",
    "aretry",
    "cancel",
    "count",
    "delete",
    "discard",
    "get_job",
    "in_batches",
    "pause",
    "resume",
    "retry",
]
CRONTAB = [
    "FIELDS",
    "add",
    "change",
    "check",
    "entries",
    "get",
    "history",
    "is_at_home",
    "new_job",
    "next_times",
    "pause",
    "remove",
    "reset",
    "resume",
    "rule_for",
    "run_now",
]
STORES = ["PostgresStore", "RedisStore", "Store", "StoreBackend", "all", "find", "store"]
EXCEPTIONS = [
    "BulkInterrupted",
    "Cancel",
    "DependencyFailed",
    "Discard",
    "DjqueueError",
    "DuplicateJob",
    "EngineBusy",
    "EngineDenied",
    "EngineRefused",
    "EngineUnavailable",
    "ForeignBackend",
    "InvalidArguments",
    "InvalidCron",
    "InvalidJob",
    "InvalidOptions",
    "InvalidPosition",
    "InvalidResult",
    "InvalidWorkflow",
    "JobSignal",
    "JobTooLarge",
    "MissingResult",
    "ResultTooLarge",
    "Retry",
    "Snooze",
    "StaleClaim",
    "TaskTimeout",
    "UnknownCron",
    "UnknownTask",
    "UnreadableJob",
    "WorkerLost",
]
OPTIONS = [
    "give_up_after_seconds",
    "max_args_bytes",
    "max_attempts",
    "max_result_bytes",
    "poll_interval_seconds",
    "queues",
    "retention",
    "shutdown_timeout_seconds",
    "tasks",
]
POSTGRES_OPTIONS = ["database", "durability", "listen", "statement_timeout_seconds"]
REDIS_OPTIONS = ["answer_timeout_seconds", "database", "outbox", "prefix", "url"]
EVENTS = [
    "djqueue.ack.dropped",
    "djqueue.ack.refused",
    "djqueue.ack.stale",
    "djqueue.cron.",
    "djqueue.cron.disabled",
    "djqueue.cron.dispute",
    "djqueue.cron.drift",
    "djqueue.cron.failure",
    "djqueue.cron.invalid",
    "djqueue.cron.name_taken",
    "djqueue.cron.refused",
    "djqueue.cron.stalled",
    "djqueue.enqueue.duplicate",
    "djqueue.enqueue.failure",
    "djqueue.enqueue.lost",
    "djqueue.job.after_commit",
    "djqueue.job.cancelling",
    "djqueue.job.interrupted",
    "djqueue.job.late",
    "djqueue.job.lingering",
    "djqueue.job.pruned",
    "djqueue.job.rescued",
    "djqueue.job.start",
    "djqueue.job.stop",
    "djqueue.job.stuck",
    "djqueue.job.unclaimed",
    "djqueue.job.unknown",
    "djqueue.job.unreadable",
    "djqueue.lane.no_thread",
    "djqueue.leader.elected",
    "djqueue.leader.lost",
    "djqueue.leader.stuck",
    "djqueue.loop.broken",
    "djqueue.loop.interrupted",
    "djqueue.outbox.failure",
    "djqueue.outbox.sent",
    "djqueue.outbox.waiting",
    "djqueue.service.failure",
    "djqueue.service.recovered",
    "djqueue.store.concern",
    "djqueue.store.seen",
    "djqueue.supervisor.cannot_spawn",
    "djqueue.supervisor.failed",
    "djqueue.supervisor.gave_up",
    "djqueue.supervisor.healthy",
    "djqueue.supervisor.stopping",
    "djqueue.supervisor.unhealthy",
    "djqueue.supervisor.waiting",
    "djqueue.worker.broken",
    "djqueue.worker.declared_dead",
    "djqueue.worker.draining",
    "djqueue.worker.hung",
    "djqueue.worker.lost",
    "djqueue.worker.moves",
    "djqueue.worker.orphaned",
    "djqueue.worker.overdue",
    "djqueue.worker.recycling",
    "djqueue.worker.silent",
    "djqueue.worker.start",
    "djqueue.worker.stop",
]
