"""README.md is true: its tutorial works by the letter, and what it names exists."""

from __future__ import annotations

import argparse
import ast
import builtins
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import django.db
import pytest
from django.apps import apps
from django.contrib.auth.management import _get_all_permissions
from django.core.management import get_commands
from django.db import connection
from django.test import override_settings

import djqueue
from djqueue import compat
from djqueue.runtime import supervisor, worker
from tests import processes, readme, stores
from tests.ledger.tasks import noop

FOREIGN_FLAGS = {
    "--all", "--appendonly", "--database", "--no-deps", "--noinput", "--postgres", "--rm", "--wheel-dir"
}  # fmt: skip
"""Of run.py, pip, docker, valkey-server and Django's own commands."""


@pytest.mark.parametrize("name", list(readme.tables()))
def test_the_tables_say_what_the_source_says(name: str) -> None:
    assert readme.written_tables()[name] == readme.tables()[name], "Write them anew: python -m tests.readme"


def test_every_option_is_documented() -> None:
    for cls in ("Options", "PostgresOptions", "RedisOptions", "QueueOptions"):
        for name, said in readme.documented_fields("conf", cls).items():
            assert said, f"{cls}.{name} has no docstring"
            assert name in readme.text()


@pytest.mark.parametrize(("module", "name"), [("tasks.unique", "Unique"), ("cron.entry", "Cron")])
def test_every_field_of_a_rule_is_named(module: str, name: str) -> None:
    for field in readme.documented_fields(module, name):
        # The expression of a Cron comes first and is never named.
        assert field == "expression" or re.search(rf"`{field}(`|=)|\b{field}=", readme.text()), f"{name}.{field}"


def test_every_flag_exists() -> None:
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", readme.text())) - FOREIGN_FLAGS
    known = {flag for name, app in get_commands().items() if app == "djqueue" for flag in _flags(name)}
    # Those of the comparison are not a command's.
    known |= set(re.findall(r'"(--[a-z-]+)"', (readme.ROOT / "bench" / "compare.py").read_text()))

    assert flags <= known


def test_every_command_exists() -> None:
    named = set(re.findall(r"manage\.py ([a-z_]+)", readme.text()))

    assert named <= {*get_commands(), "runserver", "startapp"}
    assert {name for name, app in get_commands().items() if app == "djqueue"} <= named


def test_a_command_stands_in_a_block_of_its_own() -> None:
    assert not re.findall(r"^(?:python |manage\.py |[\w.]+\(\().*", readme.prose(), flags=re.MULTILINE)


def test_every_public_exception_is_named_and_every_named_exception_exists() -> None:
    public = {name for name in djqueue.__all__ if _is_exception(getattr(djqueue, name))}
    named = set(
        re.findall(r"`([A-Z]\w+(?:Error|Exception|Lost|Timeout|TooLarge|Mismatch|DoesNotExist))\b", readme.text())
    )

    for name in named:
        known = (djqueue, builtins, compat, django.db)
        assert name == "CancelledError" or any(hasattr(module, name) for module in known), name
    assert not {name for name in public if name not in readme.text()}


def test_every_dotted_name_of_djqueue_exists() -> None:
    events = {event for path in (readme.ROOT / "djqueue").rglob("*.py") for event in _events(path.read_text())}
    checks = _check_ids()
    permissions = {
        f"djqueue.{codename}"
        for model in apps.get_app_config("djqueue").get_models()
        for codename, _ in (*_get_all_permissions(model._meta), *model._meta.permissions)
    }

    for name in re.findall(r"`(djqueue(?:\.\w+)+)", readme.prose()):
        assert name in events or name in checks or name in permissions or _is_importable(name), name


def test_every_system_check_is_documented_and_no_other() -> None:
    assert set(re.findall(r"djqueue\.[EW]\d{3}", readme.text())) == _check_ids()


def test_the_exit_codes_are_those_of_the_source() -> None:
    codes = (supervisor.EXIT_OK, supervisor.EXIT_CANNOT_START, supervisor.EXIT_NO_STORE)

    section = readme.text().partition("\n## runworker\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\d) \|", section, flags=re.MULTILINE) == [str(code) for code in codes]


def test_the_constants_that_the_text_quotes_are_those_of_the_source() -> None:
    from djqueue import propagation
    from djqueue.jobs import silence
    from djqueue.runtime import outcomes, timekeeper
    from djqueue.tasks import backoff

    assert [round(backoff.Exponential(jitter=0)(n)) for n in range(1, 6)] == [17, 19, 23, 31, 47]
    assert (propagation.MAX_BYTES, silence.BEAT_SECONDS, silence.SILENT_SECONDS) == (10_000, 2, 10)
    assert (timekeeper.GRACE_SECONDS, worker._RETIRE_SECONDS, supervisor.OVERDUE_SECONDS) == (2, 30, 40)
    assert (supervisor.GRACE_SECONDS, outcomes.PARK_SECONDS) == (15, 30)


@pytest.mark.django_db(transaction=True)
def test_the_connections_of_a_worker_are_those_that_the_text_counts() -> None:
    match = re.search(r"a supervisor holds (\d+) connections, each worker process (\d+)", readme.text())
    assert match is not None
    expected = int(match[1]) + int(match[2])

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE application_name LIKE 'djqueue %%' AND datname = current_database()"
            )
            return int(cursor.fetchone()[0])

    with processes.worker() as running:
        running.wait_for_log("worker.start")
        noop.enqueue()
        running.wait_for_log("job.stop")
        processes.eventually(lambda: count() >= expected, explain=count)

        time.sleep(3)  # every part has run by then: no more of them may appear

        assert count() == expected


@pytest.mark.parametrize("block", [pytest.param(b, id=b.strip().splitlines()[0][:40]) for b in readme.python_blocks()])
def test_every_example_compiles_and_its_tasks_can_be_defined(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports and functions are executed: a keyword of @task or a name of djqueue that does not exist fails here."""
    module = types.ModuleType("readme_example")
    monkeypatch.setitem(sys.modules, "readme_example", module)
    tree = ast.parse(block)
    kept: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            kept += [] if "shop" in ast.unparse(node) else [node]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kept.append(node)
    code = compile(ast.Module(kept, []), "README.md", "exec")

    exec(code, vars(module))  # noqa: S102  our own page


def test_every_link_within_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", readme.prose(), flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert set(re.findall(r"\]\(#([^)]+)\)", readme.text())) <= anchors
    for path in re.findall(r"\]\((?!#|https?:)([^)]+)\)", readme.text()):
        assert (readme.ROOT / path).exists(), path


class Project:
    """A scratch project on a database of its own."""

    def __init__(self, directory: Path, database: dict[str, Any]) -> None:
        self.directory = directory
        self.database = database
        self.env = {**os.environ, "PYTHONPATH": str(readme.ROOT)}
        for name in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL"):
            self.env.pop(name, None)

    def run(self, command: str, *, stdin: str = "", **env: str) -> str:
        words = command.split()
        words[0] = sys.executable if words[0] == "python" else str(Path(sys.executable).parent / words[0])
        done = subprocess.run(
            words,
            cwd=self.directory,
            env={**self.env, **env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def put(self, path: str, text: str, *, append: bool = False) -> None:
        if "DATABASES" in text:
            # The reader's own server: the address is all that differs from the page.
            settings = {name: self.database[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")}
            for name, value in settings.items():
                text, count = re.subn(rf'"{name}": [^\n]*,\n', f'"{name}": {value!r},\n', text)
                assert count == 1, name
        with open(self.directory / path, "a" if append else "w", encoding="utf-8") as file:
            file.write(text)


@pytest.fixture
def project(tmp_path: Path, django_db_blocker: Any) -> Iterator[Project]:
    settings = dict(connection.settings_dict)
    name = f"readme_{os.getpid()}"
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(f'CREATE DATABASE "{name}"')
    try:
        yield Project(tmp_path, {**settings, "NAME": name})
    finally:
        with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def test_the_tutorial_works_by_the_letter(project: Project) -> None:
    steps = list(readme.steps())
    assert [step.kind for step in steps] == ["append", "run", "file", "worker", "shell", "shell", "run"]
    settings, migrate, tasks, runworker, enqueue, refresh, superuser = steps

    project.run("django-admin startproject mysite")
    project.directory /= "mysite"
    project.run("python manage.py startapp shop")
    project.put(settings.argument, settings.text, append=True)
    project.run(migrate.text)
    assert "No changes" in project.run("python manage.py makemigrations --dry-run")
    project.put(tasks.argument, tasks.text)
    with _started(project, runworker.text) as log:
        # One shell, as a reader has it, with the moment in which a reader reads on.
        wait = "import time\nfor _ in range(300):\n    time.sleep(0.1)\n    result.refresh()\n    if result.is_finished:\n        break\n\n"
        out = project.run("python manage.py shell", stdin=f"{enqueue.text}\n{wait}{refresh.text}")
    assert "READY" in out
    assert "SUCCESSFUL Welcome, Ada!" in out
    assert "task=shop.tasks.welcome" in log.read_text()
    project.run(
        f"{superuser.text.strip()} --noinput --username admin --email admin@example.org",
        DJANGO_SUPERUSER_PASSWORD="secret",
    )
    look = textwrap.dedent("""
        from django.conf import settings
        from django.contrib.auth.models import User
        from django.test import Client

        settings.ALLOWED_HOSTS = ["testserver"]
        client = Client()
        client.force_login(User.objects.get(username="admin"))
        for page in ("job", "finishedjob", "queue", "worker"):
            print(page, client.get(f"/admin/djqueue/{page}/").status_code)
        print("Background jobs" in client.get("/admin/").content.decode())
    """)
    pages = project.run("python manage.py shell", stdin=look)
    assert "job 200\nfinishedjob 200\nqueue 200\nworker 200\nTrue\n" in pages


def test_t41_the_settings_for_tests_take_a_task_with_a_queue_of_its_own() -> None:
    section = readme.text().partition("### Testing your own code")[2].partition("\n### ")[0]
    settings = re.findall(r"^TASKS = (\{.*?\}\})", section, flags=re.MULTILINE)
    assert len(settings) == 2
    for each in settings:
        tasks = ast.literal_eval(each)
        if compat.FRAMEWORK != "django.tasks":
            tasks["default"]["BACKEND"] = tasks["default"]["BACKEND"].replace("django.tasks", "django_tasks")
        with override_settings(TASKS=tasks):
            result = djqueue.task(queue_name="mail")(noop.func).enqueue()

        assert result.task.queue_name == "mail"


def test_the_settings_for_redis_work_by_the_letter_in_a_project_on_sqlite(project: Project) -> None:
    address = "redis://127.0.0.1:6379/0"
    [settings] = re.findall(r"<!-- redis: mysite/settings.py -->\n```python\n(.*?)```", readme.text(), re.DOTALL)
    assert address in settings
    stores.empty(stores.valkey())
    project.run("django-admin startproject mysite")
    project.directory /= "mysite"
    project.run("python manage.py startapp shop")
    project.put("mysite/settings.py", settings.replace(address, stores.valkey()), append=True)
    project.put("mysite/settings.py", "INSTALLED_APPS += ['shop']\n", append=True)
    project.put("shop/tasks.py", "from djqueue import task\n\n\n@task\ndef double(number):\n    return 2 * number\n")

    assert "no issues" in project.run("python manage.py check")
    project.run("python manage.py shell", stdin="from shop.tasks import double\ndouble.enqueue(21)\n")
    project.run("python manage.py runworker --drain")

    out = project.run(
        "python manage.py shell", stdin="from shop.tasks import double\nprint(double.get_result('1').return_value)\n"
    )
    assert "42" in out


def test_the_workflows_of_the_page_run(project: Project) -> None:
    blocks = re.findall(r"<!-- workflow: (\S+) -->\n```python\n(.*?)```", readme.text(), re.DOTALL)
    assert [kind for kind, _ in blocks] == ["shop/tasks.py", "shell", "shell", "shell"]
    tasks, *written, look = [text for _, text in blocks]
    settings = next(step.text for step in readme.steps() if step.kind == "append")
    project.run("django-admin startproject mysite")
    project.directory /= "mysite"
    project.run("python manage.py startapp shop")
    project.put("mysite/settings.py", settings, append=True)
    project.put("shop/tasks.py", tasks)
    project.run("python manage.py migrate")

    keep = "import pickle\nopen('handles', 'wb').write(pickle.dumps((workflow, graph)))\n"
    project.run("python manage.py shell", stdin="\n".join([*written, keep]))
    project.run("python manage.py runworker --drain")

    load = "import pickle\nworkflow, graph = pickle.load(open('handles', 'rb'))\n"
    ask = (
        "print([each.return_value for each in (workflow.get_result(), graph.get_result('publish'))], graph.status())\n"
    )
    out = project.run("python manage.py shell", stdin=f"{load}{look}{ask}")
    assert "[2, 2]" in out
    assert "total=5, completed=5" in out


class _started:
    """A command that runs beside, ended by Ctrl-C as the tutorial says; exit code 0 is part of the promise."""

    def __init__(self, project: Project, command: str) -> None:
        self.log = project.directory / "worker.log"
        self._file = self.log.open("w")
        words = [sys.executable, *command.split()[1:]]
        self._process = subprocess.Popen(
            words,
            cwd=project.directory,
            env=project.env,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Path:
        return self.log

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGINT)
            code = self._process.wait(40)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._file.close()
        if kind is None:
            assert code == 0, self.log.read_text()


def _flags(command: str) -> set[str]:
    parsers = [readme.parser(command)]
    for action in parsers[0]._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers += action.choices.values()
    return {flag for parser in parsers for action in parser._actions for flag in action.option_strings}


def _events(source: str) -> list[str]:
    return re.findall(r'"(djqueue(?:\.\w+)+)"', source)


def _check_ids() -> set[str]:
    sources = [path.read_text() for path in (readme.ROOT / "djqueue").rglob("*.py")]
    return {found for source in sources for found in re.findall(r'id="(djqueue\.[EW]\d{3})"', source)}


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _is_importable(name: str) -> bool:
    with suppress(ImportError):
        import_module(name)
        return True
    home, _, last = name.rpartition(".")
    with suppress(ImportError):
        return hasattr(import_module(home), last)
    return False
