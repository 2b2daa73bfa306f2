"""The settings of a djqueue backend: the OPTIONS of its entry in TASKS.

One frozen object per backend holds every default: options that all backends accept are in ``Options``, options of one
backend in a subclass. ``parse`` raises ``InvalidOptions`` with one sentence per mistake; ``djqueue.checks`` reports the
same sentences as system checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from djqueue.exceptions import InvalidOptions
from djqueue.jobs.encoding import MAX_ARGS_BYTES
from djqueue.jobs.names import invalid_queue_name, is_queue_name
from djqueue.jobs.records import PruneRule
from djqueue.jobs.retention import DEFAULT_RETENTION, Retention, parse_retention, prune_rules

_PREFIX = re.compile(r"[\w.:-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    concurrency: int | None = None
    """How many jobs of this queue one worker process runs at once, in slots reserved for it. None: the queue shares the
    worker's slots."""
    delivery: str = "at_least_once"
    """"at_most_once": a job is deleted from the store when it is fetched, so it never runs a second time, even if its worker dies."""
    durability: str | None = None
    """PostgreSQL only. "relaxed": an enqueue outside a transaction does not wait for the disk. None: the backend's
    ``durability``."""
    retention: Retention = field(default_factory=dict)
    """Overrides the backend's ``retention`` for this queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    retention: Retention = field(default_factory=dict)
    """Overrides the ``retention`` of the backend and of the queue for this task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of every backend."""

    queues: Mapping[str, QueueOptions] = field(default_factory=dict)
    """Rules per queue: ``{"mail": {"concurrency": 20, "retention": {"completed": "1 hour"}}}``."""
    tasks: Mapping[str, TaskOptions] = field(default_factory=dict)
    """Rules per task: ``{"shop.tasks.pay": {"retention": {"completed": "90 days"}}}``."""
    retention: Retention = field(default_factory=lambda: DEFAULT_RETENTION)
    """How long finished jobs are kept, per state: ``{"completed": "1 day", "discarded": {"age": "30 days", "count": 10_000}}``.
    An age is a duration, or None to keep jobs forever. States that are not listed keep their defaults."""
    max_attempts: int = 20
    """How many times a job is attempted before it is discarded, unless its task sets another number."""
    max_args_bytes: int = 256 * 1024
    """Maximum size of the arguments of one job as JSON, before compression."""
    max_result_bytes: int = 256 * 1024
    """Maximum size of a return value as JSON. The attempt fails if the value is larger."""
    poll_interval_seconds: float = 1.0
    """How often an idle worker looks for jobs without being woken, in case a wake-up was lost."""
    give_up_after_seconds: float = 600.0
    """How long a worker keeps retrying when the store does not answer; then it exits with code 2."""
    shutdown_timeout_seconds: float = 30.0
    """How long a stopping worker waits for its running jobs; then it hands them back to the queue."""

    def prune_rules(self) -> list[PruneRule]:
        """Return the retention of finished jobs as rules for the engine."""
        return prune_rules(
            self.retention,
            {queue: rules.retention for queue, rules in self.queues.items()},
            {task: rules.retention for task, rules in self.tasks.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions(Options):
    """The additional options of ``PostgresBackend``."""

    database: str = "default"
    """The alias in DATABASES that holds the tables."""
    durability: str = "durable"
    """"relaxed": an enqueue outside a transaction returns before the job is on disk. A crash of the database server, even of
    a single server process, can lose the jobs of the last fraction of a second. Queues and tasks can override it."""
    listen: bool = True
    """False: workers do not use LISTEN and only poll. Required behind a transaction-level connection pooler."""
    statement_timeout_seconds: float = 30.0
    """The server cancels a worker's statement after this long. If there is no answer after another third of it, the worker
    closes the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions(Options):
    """The additional options of ``RedisBackend``."""

    url: str = "redis://127.0.0.1:6379/0"
    """Address of the server: ``redis://user:password@host:port/database``, ``rediss://`` for TLS, or ``unix:///path/of/socket``."""
    prefix: str = "djqueue"
    """Prefix of all keys. Projects that share a server need different prefixes."""
    database: str = "default"
    """The alias in DATABASES whose transactions jobs wait for: a job enqueued in a transaction is sent when it commits."""
    answer_timeout_seconds: float = 30.0
    """How long enqueues and workers wait for an answer before they treat the server as unavailable."""
    outbox: bool = False
    """True: jobs enqueued in a transaction are first written to a table of that database, so a crash after the commit and
    before the server has the jobs does not lose them."""


DELIVERIES = ("at_least_once", "at_most_once")
DURABILITIES = ("durable", "relaxed")
_Options = TypeVar("_Options", bound=Options)
_CHOICES: dict[str, tuple[str, ...]] = {"durability": DURABILITIES}
_URL_PARAMETERS = ("db", "username", "password", "socket_connect_timeout")
_TLS_PARAMETERS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_ciphers",
    "ssl_keyfile",
    "ssl_min_version",
    "ssl_password",
)
_RANGES: dict[str, tuple[float, float]] = {  # every option that is a number has its entry here
    "max_attempts": (1, 1_000_000),
    "max_args_bytes": (1024, MAX_ARGS_BYTES),
    "max_result_bytes": (1024, 64 * 1024 * 1024),
    "poll_interval_seconds": (0.05, 3600),
    "answer_timeout_seconds": (0.1, 3600),
    "statement_timeout_seconds": (1, 3600),
    "give_up_after_seconds": (1, 10_000_000),
    "shutdown_timeout_seconds": (0, 86_400),
}


def parse(options: object, kind: type[_Options]) -> _Options:
    """Turn the OPTIONS of a backend into an object; raise ``InvalidOptions`` listing every mistake."""
    if not isinstance(options, Mapping):
        raise InvalidOptions(f"Invalid OPTIONS {options!r}: use a dict.")
    problems: list[str] = []
    known = {f.name: f for f in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in known:
            problems.append(f"Invalid option {key!r}: use one of {', '.join(sorted(known))}.")
        elif key == "queues":
            values[key] = _parse_queues(value, "durability" in known, problems)
        elif key == "tasks":
            values[key] = _parse_tasks(value, problems)
        elif key == "retention":
            rules, wrong = parse_retention("'retention'", value)
            problems += wrong
            values[key] = {**DEFAULT_RETENTION, **rules}
        elif problem := _problem(key, value, known[key].default):
            problems.append(problem)
        else:
            values[key] = value
    if problems:
        raise InvalidOptions(" ".join(problems))
    return kind(**values)


def _problem(key: str, value: object, default: object) -> str:
    if key in _CHOICES:
        return _choice_problem(repr(key), value, _CHOICES[key])
    if key == "url":
        return _url_problem(value)
    if key == "prefix":
        is_name = isinstance(value, str) and _PREFIX.fullmatch(value)
        return "" if is_name else f"Invalid 'prefix' {value!r}: use 1–64 letters, digits, '_', '.', ':' or '-'."
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else f"Invalid {key!r} {value!r}: use True or False."
    if isinstance(default, str):
        return "" if isinstance(value, str) else f"Invalid {key!r} {value!r}: use a string."
    low, high = _RANGES[key]
    is_number = isinstance(value, int if isinstance(default, int) else int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]  # a number by now
        return f"Invalid {key!r} {value!r}: use a number from {low:g} to {high:g}."
    return ""


def _url_problem(value: object) -> str:
    wanted = "'url' takes an address like redis://user:password@host:6379/0, rediss://… or unix:///path/of/socket"
    if not isinstance(value, str):
        # The value is not shown: it may contain an address with a password.
        return f"{wanted}, not {value if value is None or isinstance(value, int) else f'a {type(value).__name__}'}."
    try:
        parts = urlsplit(value)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return f"{wanted}; this one cannot be read."
    # No part of the address is shown: in an invalid one, any part may belong to the password.
    if parts.scheme not in ("redis", "rediss", "unix"):
        return f"{wanted}; this one begins with none of them."
    if parts.scheme == "unix" and not parts.path.strip("/"):
        return f"{wanted}; this one names no socket."
    if not has_port:
        return f"{wanted}; the port of this one is 0."
    known = (*_URL_PARAMETERS, *(_TLS_PARAMETERS if parts.scheme == "rediss" else ()))
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if set(parameters) - set(known):
        return f"{wanted}; after a question mark, use only {', '.join(known)}."
    databases = [parameters.get("db", ""), "" if parts.scheme == "unix" else unquote(parts.path).strip("/")]
    if any(each and not (each.isascii() and each.isdigit()) for each in databases):
        return f"{wanted}; the database of this one is not a number."
    return ""


def _choice_problem(name: str, value: object, choices: tuple[str, ...]) -> str:
    return "" if value in choices else f"Invalid {name} {value!r}: use {' or '.join(map(repr, choices))}."


def _parse_queues(value: object, has_durability: bool, problems: list[str]) -> dict[str, QueueOptions]:
    """Parse ``queues``. ``has_durability``: the backend has this option, so its queues can override it."""
    parsed: dict[str, QueueOptions] = {}
    known = [each.name for each in fields(QueueOptions) if has_durability or each.name != "durability"]
    if not isinstance(value, Mapping):
        problems.append(f"Invalid 'queues' {value!r}: use a dict of queue names to their rules.")
        return parsed
    for name, rules in value.items():
        if not is_queue_name(name):
            problems.append(invalid_queue_name(name))
        elif not isinstance(rules, Mapping) or set(rules) - set(known):
            keys = f"{', '.join(map(repr, known[:-1]))} and {known[-1]!r}"
            problems.append(f"Invalid rules of queue {name!r} {rules!r}: use a dict with the keys {keys}.")
        else:
            concurrency = rules.get("concurrency")
            if concurrency is not None and (type(concurrency) is not int or not 1 <= concurrency <= 10_000):
                problems.append(f"Invalid concurrency of queue {name!r} {concurrency!r}: use a number from 1 to 10000.")
            retention, wrong = parse_retention(f"'retention' of queue {name!r}", rules.get("retention", {}))
            problems += wrong
            delivery = rules.get("delivery", DELIVERIES[0])
            durability = rules.get("durability")
            if problem := _choice_problem(f"'delivery' of queue {name!r}", delivery, DELIVERIES):
                problems.append(problem)
            if durability is not None and (
                problem := _choice_problem(f"'durability' of queue {name!r}", durability, DURABILITIES)
            ):
                problems.append(problem)
            parsed[name] = QueueOptions(
                concurrency=concurrency, delivery=delivery, durability=durability, retention=retention
            )
    return parsed


def _parse_tasks(value: object, problems: list[str]) -> dict[str, TaskOptions]:
    parsed: dict[str, TaskOptions] = {}
    if not isinstance(value, Mapping):
        problems.append(f"Invalid 'tasks' {value!r}: use a dict of task paths to their rules.")
        return parsed
    for path, rules in value.items():
        if not isinstance(path, str) or "." not in path:
            problems.append(f"Invalid task path {path!r}: use one like 'shop.tasks.send_mail'.")
        elif not isinstance(rules, Mapping) or set(rules) - {"retention"}:
            problems.append(f"Invalid rules of task {path!r} {rules!r}: use a dict with the key 'retention'.")
        else:
            retention, wrong = parse_retention(f"'retention' of task {path!r}", rules.get("retention", {}))
            problems += wrong
            parsed[path] = TaskOptions(retention=retention)
    return parsed
