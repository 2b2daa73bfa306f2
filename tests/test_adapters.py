"""What djqueue uses of other projects beyond their documented interfaces, one test per name.

A test that fails after an upgrade names what has changed. Its docstring says what to do then. All of it is used from
``djqueue/adapters`` only, which the last test here checks.
"""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from asgiref.sync import SyncToAsync, ThreadSensitiveContext, async_to_sync, sync_to_async
from django.conf import Settings, UserSettingsHolder
from django.conf import settings as django_settings
from django.contrib.auth.models import Group
from django.core.checks.registry import registry
from django.core.signals import request_finished
from django.db import connections, transaction
from django.db.models.signals import pre_delete
from django.dispatch import Signal
from django.test import override_settings
from redis.connection import Connection as RedisConnection
from redis.connection import parse_url

import djqueue
from djqueue import compat
from djqueue.adapters import asgiref as asgiref_adapter
from djqueue.adapters import django as django_adapter
from djqueue.adapters import django_postgresql
from djqueue.adapters import psycopg as psycopg_adapter
from djqueue.adapters import python as python_adapter
from djqueue.adapters import redis as redis_adapter
from tests import stores

in_transactions = pytest.mark.django_db(transaction=True)
connection = connections["default"]


@pytest.fixture
def raw(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    connection.ensure_connection()
    yield connection.connection
    connection.close()


# Django, any database


@in_transactions
def test_run_on_commit() -> None:
    """If gone: collect the callbacks in an attribute of ours, and find out what a rolled-back savepoint dropped."""

    def first() -> None: ...
    def second() -> None: ...

    with transaction.atomic():
        hooks = django_adapter.commit_hooks(connection)
        transaction.on_commit(first)
        with transaction.atomic():
            transaction.on_commit(second)
            assert [hook[1] for hook in hooks] == [first, second]
            assert hooks[0][0] == set()
            assert hooks[1][0] == set(django_adapter.savepoints(connection))
        with suppress(ZeroDivisionError), transaction.atomic():
            transaction.on_commit(second)
            _ = 1 / 0
        assert len(django_adapter.commit_hooks(connection)) == 2


@in_transactions
def test_savepoint_ids() -> None:
    """If gone: a hook of the same transaction can no longer be shared; register one per enqueue."""
    with transaction.atomic():
        assert django_adapter.savepoints(connection) == []
        with transaction.atomic():
            assert len(django_adapter.savepoints(connection)) == 1


@in_transactions
def test_atomic_blocks() -> None:
    """If gone: close the connection instead of rolling back to the outermost block, and fail the job."""
    with suppress(ZeroDivisionError), transaction.atomic():
        transaction.atomic().__enter__()
        assert len(connection.atomic_blocks) == 2
        django_adapter.keep_outermost_block(connection)
        assert len(connection.atomic_blocks) == 1
        assert not connection.savepoint_ids
        Group.objects.create(name="rolled back")
        _ = 1 / 0
    assert not Group.objects.filter(name="rolled back").exists()


@in_transactions
def test_forget_transaction() -> None:
    """If one of its attributes is gone or renamed: see what ``BaseDatabaseWrapper.connect`` resets, and reset the same."""
    connection.ensure_connection()
    transaction.atomic().__enter__()
    for name in ("in_atomic_block", "closed_in_transaction", "needs_rollback", "savepoint_ids", "atomic_blocks"):
        assert name in vars(connection)
    connection.set_rollback(True)
    django_adapter.forget_transaction(connection)
    connection.close()
    assert connection.connection is None
    assert not Group.objects.filter(name="").exists()  # connects again, in autocommit mode
    assert connection.get_autocommit()


@in_transactions
@pytest.mark.parametrize("name", ["close_at", "errors_occurred", "health_check_done", "queries_log", "autocommit"])
def test_state_of_a_connection(name: str) -> None:
    """If gone: see how ``close_if_unusable_or_obsolete`` decides, and mend ``settle`` in runtime/django_connections.py."""
    connection.ensure_connection()
    assert hasattr(connection, name)


@in_transactions
@pytest.mark.parametrize(
    "name",
    ["close_if_health_check_failed", "validate_no_broken_transaction", "ensure_connection", "wrap_database_errors"],
)
def test_steps_of_a_statement(name: str) -> None:
    """If gone: see what ``CursorWrapper._execute`` and ``BaseDatabaseWrapper._cursor`` do first, and do it in direct.py."""
    assert hasattr(connection, name)


@in_transactions
def test_is_watched() -> None:
    """If this fails: statements would bypass the query log or a wrapper. Find where Django's cursors call them now."""
    assert not django_adapter.is_watched(connection)
    with connection.execute_wrapper(lambda execute, *arguments: execute(*arguments)):
        assert django_adapter.is_watched(connection)
    connection.force_debug_cursor = True
    assert django_adapter.is_watched(connection)
    connection.force_debug_cursor = False


@in_transactions
def test_get_new_connection_is_looked_up_on_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails: sessions are not reused with ``CONN_MAX_AGE = 0``. Override ``connect`` instead, or drop the reuse."""
    assert django_adapter.is_opened_by_django(connection)
    genuine, calls = connection.get_new_connection, []
    monkeypatch.setattr(connection, "get_new_connection", lambda params: calls.append(params) or genuine(params))
    connection.close()
    connection.ensure_connection()
    assert calls == [connection.get_connection_params()]


def test_close_of_a_backend() -> None:
    """If gone: drop the name from ``is_opened_by_django``, and check what else a backend may override."""
    assert type(connection)._close.__module__.startswith("django.")


@in_transactions
def test_init_connection_state(raw: psycopg.Connection[Any]) -> None:
    """If gone: see what ``BaseDatabaseWrapper.connect`` calls after ``get_new_connection``, and call it in ``_initialize``."""
    raw.execute("SET timezone = 'Asia/Tokyo'")
    connection.timezone_name  # noqa: B018  cached
    connection.init_connection_state()
    assert raw.info.parameter_status("TimeZone") == "UTC"


def test_connection_pools() -> None:
    """If gone: find where Django keeps its pools now. A fork must not use or collect those of its parent."""
    kind = type(connection)
    pools = kind._connection_pools
    try:
        assert django_adapter.take_connection_pools() is pools
        assert kind._connection_pools == {}
        assert kind._connection_pools is not pools
    finally:
        kind._connection_pools = pools


@in_transactions
def test_raw_delete(django_assert_num_queries: Any) -> None:
    """If gone: use ``delete()``, which costs one more query where any receiver of ``pre_delete`` is connected."""
    Group.objects.create(name="one")

    def listen(**kwargs: Any) -> None: ...

    pre_delete.connect(listen)
    try:
        with django_assert_num_queries(1):
            django_adapter.delete_rows(Group.objects.using("default").filter(name="one"), "default")
    finally:
        pre_delete.disconnect(listen)
    assert not Group.objects.exists()


def test_registered_system_checks() -> None:
    """``checks.check_backends`` takes the place of the check of ``django.tasks``; without it both would run."""
    assert isinstance(registry.registered_checks, set)
    assert not [check for check in registry.get_checks() if check.__module__ == "django.tasks.checks"]


def test_wrapped_settings() -> None:
    """If gone: a worker can no longer find the settings module behind ``override_settings``. Ask the environment variable."""
    with override_settings(USE_TZ=True):
        loaded = django_adapter.loaded_settings(django_settings)
        assert isinstance(loaded, UserSettingsHolder)
        while isinstance(loaded, UserSettingsHolder):
            loaded = loaded.default_settings
    assert isinstance(loaded, Settings)
    assert loaded.SETTINGS_MODULE == "tests.settings"


def test_receivers_of_a_signal() -> None:
    """If this fails: ``compat.has_listeners`` takes the framework's own receiver for one of the project, or misses one."""
    signal = Signal()

    def listen(**kwargs: Any) -> None: ...

    signal.connect(listen)
    [receiver] = signal.receivers
    assert receiver[0][0] == id(listen)
    assert request_finished.receivers, "Django itself connects a receiver"


def test_log_receivers_of_tasks() -> None:
    """If this fails: the framework logs its signals otherwise. See which receivers its module ``signals`` connects."""
    assert compat._FRAMEWORK_RECEIVERS
    for signal in (compat.task_enqueued, compat.task_started, compat.task_finished):
        assert signal.receivers[0][0][0] in compat._FRAMEWORK_RECEIVERS


def test_return_value_of_a_result() -> None:
    """If gone: see where ``TaskResult.return_value`` reads from, and set that in djqueue/tasks/results.py."""
    fields = {field.name for field in compat.TaskResult.__dataclass_fields__.values()}
    assert "_return_value" in fields


# Django, PostgreSQL


@in_transactions
def test_cursors_of_postgresql(raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails: statements go through Django's cursors, correct but slower. Name Django's cursor classes of today."""
    assert django_postgresql.has_plain_cursors(connection)
    raw.cursor_factory = psycopg.ClientCursor
    assert not django_postgresql.has_plain_cursors(connection)
    raw.cursor_factory = psycopg.Cursor
    monkeypatch.setattr(type(connection), "create_cursor", lambda self, name=None: None)
    assert not django_postgresql.has_plain_cursors(connection)


# psycopg


def test_wait_of_a_connection(raw: psycopg.Connection[Any]) -> None:
    """If this fails: psycopg waits elsewhere. Find where, or a silent proxy stops a worker for as long as it likes."""
    patient = psycopg_adapter.PatientConnection(raw.pgconn)
    patient.autocommit = True
    assert patient.execute("SELECT 1").fetchone() == (1,)
    patient.patience_seconds = 0.2
    with pytest.raises(psycopg.OperationalError, match=r"no answer within 0\.2 seconds"):
        patient.execute("SELECT pg_sleep(5)")
    assert patient.closed


def test_generators(raw: psycopg.Connection[Any]) -> None:
    """If this fails: run these statements with ``psycopg.RawCursor``, which takes more of the client's time."""
    with raw.lock:
        answer = raw.wait(psycopg_adapter.execute(raw.pgconn, b"SELECT $1::int8", [b"7"]))
        assert answer.get_value(0, 0) == (7).to_bytes(8, "big")
        raw.wait(psycopg_adapter.prepare(raw.pgconn, b"seven", b"SELECT $1::text"))
        answer = raw.wait(psycopg_adapter.execute_prepared(raw.pgconn, b"seven", [b"eight"]))
        assert answer.get_value(0, 0) == b"eight"
        with pytest.raises(psycopg.errors.DivisionByZero):
            raw.wait(psycopg_adapter.execute(raw.pgconn, b"SELECT 1 / 0", []))


def test_handlers_of_a_connection(raw: psycopg.Connection[Any]) -> None:
    """If this fails: a session whose task added a handler would be reused. Find where psycopg keeps them now."""
    assert psycopg_adapter.handler_counts(raw) == (0, 0)
    raw.add_notice_handler(lambda diagnostic: None)
    raw.add_notify_handler(lambda notify: None)
    assert psycopg_adapter.handler_counts(raw) == (1, 1)


@pytest.mark.parametrize("name", ["consume_input", "notifies", "socket", "transaction_status", "pipeline_status"])
def test_libpq(raw: psycopg.Connection[Any], name: str) -> None:
    """If gone: see ``psycopg.pq``. The listener and the reuse of sessions read the socket of libpq themselves."""
    assert hasattr(raw.pgconn, name)


# redis-py


def test_socket_of_a_connection() -> None:
    """If gone: subclass ``Connection`` and keep what ``_connect`` returns."""
    options = parse_url(stores.valkey())
    opened = RedisConnection(driver_info=None, **options)
    opened.connect()
    assert redis_adapter.socket_of(opened).getpeername()[1] == options["port"]
    opened.disconnect()


# asgiref


def test_contexts_with_threads() -> None:
    """If gone: call ``close_all`` in the context's thread in any case, at the price of a thread per async job."""
    assert asgiref_adapter.contexts_with_threads is SyncToAsync.context_to_thread_executor

    async def look() -> list[bool]:
        async with ThreadSensitiveContext() as context:
            before = context in asgiref_adapter.contexts_with_threads
            await sync_to_async(int)()
            return [before, context in asgiref_adapter.contexts_with_threads]

    assert asyncio.run(look()) == [False, True]


def test_single_thread_executor() -> None:
    """If gone: jobs that call ``asyncio.run`` share one thread and its connections. Find what asgiref runs sync code in."""
    before = SyncToAsync.single_thread_executor
    with ThreadPoolExecutor(1, thread_name_prefix="ours") as executor:
        asgiref_adapter.use_for_sync_code(executor)
        try:
            name = asyncio.run(sync_to_async(lambda: threading.current_thread().name)())
        finally:
            SyncToAsync.single_thread_executor = before
    assert name.startswith("ours")
    assert async_to_sync(sync_to_async(int))() == 0


# Python


def test_interpreter_flags() -> None:
    """If gone: pass ``-W`` from ``sys.warnoptions``, ``-X`` from ``sys._xoptions`` and ``-O`` from ``sys.flags`` ourselves."""
    program = "from djqueue.adapters.python import interpreter_flags; print(*interpreter_flags())"
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-O", "-c", program]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {"-O", "-Wignore::ResourceWarning"} <= set(shown.split())


def test_exit_hooks() -> None:
    """If gone: see what ``Py_FinalizeEx`` calls first. A worker must run the same hooks, but not wait for all threads."""
    program = (
        "import atexit, os, threading, time; from djqueue.adapters.python import run_exit_hooks;"
        " atexit.register(print, 'hook', flush=True);"
        " threading.Thread(target=lambda: (time.sleep(0.2), print('thread', flush=True))).start();"
        " run_exit_hooks(); os._exit(0)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["thread", "hook"]


def test_frames_of_threads() -> None:
    """If gone: the log names the job whose receivers hang, and no longer the line. Drop the stack from ``job.lingering``."""
    frame = python_adapter.thread_frames()[threading.get_ident()]
    assert frame.f_code.co_name in ("thread_frames", "test_frames_of_threads")


def test_worker_of_a_thread_pool() -> None:
    """If this fails: a fork in a pool's thread never ends. See what ``concurrent.futures.thread._worker`` waits for."""
    pool = ThreadPoolExecutor(1)
    thread = pool.submit(threading.current_thread).result()
    pool.submit(python_adapter.leave_thread_pool).result()
    thread.join(5)
    assert not thread.is_alive()


def test_callbacks_of_a_loop() -> None:
    """If gone: a fork of an async worker goes round its loop once more, and may touch what belongs to the worker."""
    loop, called = asyncio.new_event_loop(), []
    loop.call_soon(called.append, 1)
    python_adapter.drop_callbacks(loop)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert called == []


def test_json_encoder() -> None:
    """If this fails: arguments are encoded correctly, in three times the time. See how ``JSONEncoder.iterencode`` makes it."""
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    encode = python_adapter.json_encode(encoder)
    assert encode != encoder.encode
    assert encode({"a": [1, "ü", None]}) == encoder.encode({"a": [1, "ü", None]}) == '{"a":[1,"ü",null]}'


# All of them


PACKAGE = Path(djqueue.__file__).parent
DOCUMENTED = {"_meta", "_state", "_default_manager", "_asdict", "_replace", "_fields", "_field_defaults"}
"""By Django and for named tuples, the underscore notwithstanding."""
UNDOCUMENTED = {
    "atomic_blocks", "closed_in_transaction", "context_to_thread_executor", "needs_rollback", "run_on_commit",
    "savepoint_ids", "single_thread_executor", "error_from_result", "c_make_encoder", "create_cursor",
}  # fmt: skip


def test_private_names_are_used_by_the_adapters_only() -> None:
    trees = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    own = {name for tree in trees.values() for node in ast.walk(tree) for name in _defined(node)}
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path, tree in trees.items()
        if path.parent.name != "adapters"
        for node in ast.walk(tree)
        for name in _used(node)
        if name in UNDOCUMENTED or (name.startswith("_") and name[1:2] != "_" and name not in own | DOCUMENTED)
    }
    # The state that a fork leaves behind: Django's own word for "do not connect again in here".
    assert found - {"runtime/process.py: closed_in_transaction"} == set()


def _defined(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
            return [name]
        case ast.Name(id=name, ctx=ast.Store()):
            return [name]
        case ast.Attribute(attr=name) if name.startswith("_djqueue"):
            return [name]
    return []


def _used(node: ast.AST) -> list[str]:
    match node:
        case ast.Attribute(attr=name):
            return [name]
        case ast.ImportFrom(module=module, names=names) if module and not module.startswith("djqueue"):
            return [name.name for name in names]
    return []
