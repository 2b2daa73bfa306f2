"""The OPTIONS of RedisBackend, and what the system checks say about them."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import CheckMessage, Tags, run_checks
from django.test import override_settings

from djqueue import InvalidOptions, checks, compat, conf, task
from djqueue.engines.redis.nodes import Nodes
from djqueue.stores import RedisStore
from tests.app import tasks

REDIS = "djqueue.backends.RedisBackend"


def messages(**entry: Any) -> list[CheckMessage]:
    with override_settings(TASKS={"default": {"BACKEND": REDIS, "QUEUES": [], **entry}}):
        return [message for message in run_checks() if str(message.id).startswith("djqueue.")]


class TestOptions:
    def test_the_defaults_have_no_problem(self) -> None:
        assert messages() == []
        assert conf.parse({}, conf.RedisOptions).url == "redis://127.0.0.1:6379/0"

    @pytest.mark.parametrize(
        "url",
        [
            "redis://localhost",
            "redis://localhost:6380/3",
            "redis://user:p%40ss@[::1]:6379/0",
            "rediss://:secret@redis.example.org:6380/0?ssl_cert_reqs=required",
            "unix:///run/redis/redis.sock?db=2",
            "unix://:secret@/run/redis.sock",
        ],
    )
    def test_a_url_of_any_kind_is_taken(self, url: str) -> None:
        assert conf.parse({"url": url}, conf.RedisOptions).url == url

    @pytest.mark.parametrize(
        ("url", "word"),
        [
            ("localhost:6379", "begins with none of them"),
            ("http://localhost:6379/0", "begins with none of them"),
            ("", "begins with none of them"),
            ("redis://localhost:99999/0", "cannot be read"),
            ("redis://localhost:0/0", "the port of this one is 0"),
            ("redis://localhost:x/0", "cannot be read"),
            ("redis://localhost/queue", "the database of this one is not a number"),
            ("unix://", "names no socket"),
            ("redis://localhost?max_connections=5", "use only db, username"),
            ("redis://localhost?ssl_cert_reqs=none", "use only db, username"),
            ("unix:///run/redis.sock?db=two", "the database of this one is not a number"),
            (6379, "not 6379"),
            (None, "not None"),
            (["redis://a", "redis://b"], "not a list"),
        ],
    )
    def test_an_impossible_url_is_told(self, url: Any, word: str) -> None:
        with pytest.raises(InvalidOptions, match=rf"^'url' takes an address like .*{word}"):
            conf.parse({"url": url}, conf.RedisOptions)

    @pytest.mark.parametrize(("scheme", "names"), [("redis", conf._URL_PARAMETERS), ("rediss", conf._TLS_PARAMETERS)])
    def test_what_a_url_may_say_is_what_the_client_takes(self, scheme: str, names: tuple[str, ...]) -> None:
        values = {"ssl_cert_reqs": "required", "ssl_check_hostname": "no", "ssl_min_version": "771"}
        query = "&".join(f"{name}={values.get(name, '1')}" for name in names)
        url = conf.parse({"url": f"{scheme}://localhost/1?{query}"}, conf.RedisOptions).url
        nodes = Nodes(url)

        assert nodes.connection(nodes.home)

    @pytest.mark.parametrize(
        "url",
        [
            "hunter2",
            "hunter2@localhost:6379/0",
            "hunter2:hunter2@localhost",
            "hunter2://localhost",
            "redis://ada:hunter2/x@localhost:6379/0",
            "redis://ada:1/hunter2@localhost:6379/0",
            "redis://ada:1?hunter2@localhost:6379/0",
            "redis://ada:1?x=1&hunter2=@localhost:6379/0",
            "redis://[hunter2",
            "unix:///run/socket?db=hunter2",
            ["redis://:hunter2@localhost"],
            b"redis://:hunter2@localhost",
        ],
    )
    def test_t73_no_message_shows_anything_of_a_wrong_url(self, url: Any) -> None:
        with pytest.raises(InvalidOptions) as refused:
            conf.parse({"url": url}, conf.RedisOptions)

        assert "hunter2" not in str(refused.value)

    def test_no_message_shows_a_password(self) -> None:
        with pytest.raises(InvalidOptions) as caught:
            conf.parse({"url": "http://user:geheim@localhost:6379/queue"}, conf.RedisOptions)

        assert "geheim" not in str(caught.value)

    @pytest.mark.parametrize("prefix", ["", "a b", "{x}", "ä", "x" * 65, 7, None])
    def test_an_impossible_prefix_is_told(self, prefix: Any) -> None:
        with pytest.raises(InvalidOptions, match=r"Invalid 'prefix' .*: use 1–64 letters"):
            conf.parse({"prefix": prefix}, conf.RedisOptions)

    @pytest.mark.parametrize(
        ("options", "word"),
        [
            ({"outbox": "yes"}, "Invalid 'outbox' 'yes': use True or False"),
            ({"database": 3}, "Invalid 'database' 3: use a string"),
            ({"max_attempts": 0}, "Invalid 'max_attempts' 0: use a number from 1"),
            # What PostgreSQL alone has would be accepted in vain.
            ({"listen": False}, "Invalid option 'listen'"),
            ({"durability": "relaxed"}, "Invalid option 'durability'"),
            ({"statement_timeout_seconds": 3}, "Invalid option 'statement_timeout_seconds'"),
            (
                {"queues": {"mail": {"durability": "relaxed"}}},
                "use a dict with the keys 'concurrency', 'delivery' and 'retention'.",
            ),
        ],
    )
    def test_an_option_that_means_nothing_here_is_told(self, options: dict[str, Any], word: str) -> None:
        [message] = messages(OPTIONS=options)

        assert message.id == "djqueue.E002"
        assert word in message.msg

    @pytest.mark.parametrize("option", [{"url": "redis://localhost"}, {"prefix": "x"}, {"outbox": True}])
    def test_nor_has_postgresql_those_of_redis(self, option: dict[str, Any]) -> None:
        [message] = messages(BACKEND="djqueue.backends.PostgresBackend", OPTIONS=option)

        assert "Invalid option" in message.msg

    def test_rules_of_queues_and_retention_are_the_same_as_everywhere(self) -> None:
        options = conf.parse(
            {"queues": {"mail": {"concurrency": 3, "delivery": "at_most_once"}}, "retention": {"completed": "1 hour"}},
            conf.RedisOptions,
        )

        assert (options.queues["mail"].concurrency, options.queues["mail"].delivery) == (3, "at_most_once")
        assert len(options.prune_rules()) == 3


class TestChecks:
    def test_an_unknown_database_is_an_error(self) -> None:
        [message] = messages(OPTIONS={"database": "other"})

        assert (message.id, message.obj) == ("djqueue.E003", "TASKS['default']")

    def test_any_vendor_will_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from django.db import connections

        monkeypatch.setattr(type(connections["default"]), "vendor", "sqlite")

        assert messages() == []

    def test_missing_packages_are_an_error_that_says_how_to_get_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checks, "find_spec", lambda name: None)

        [message] = messages()

        assert message.id == "djqueue.E006"
        assert "redis and msgpack" in message.msg
        assert "python -m pip install 'redis[hiredis]" in str(message.hint)

    def test_a_check_asks_no_server(self) -> None:
        assert messages(OPTIONS={"url": "redis://127.0.0.1:1/0"}) == []

    @pytest.mark.django_db
    def test_but_that_of_databases_does(self) -> None:
        entry = {"BACKEND": REDIS, "OPTIONS": {"url": "redis://127.0.0.1:1/0"}}
        with override_settings(TASKS={"default": entry}):
            found = run_checks(tags=[Tags.database], databases=["default"])

        assert [message.id for message in found] == ["djqueue.W009"]
        assert "127.0.0.1:1 cannot be reached" in found[0].msg
        assert "correct its address in TASKS['default']['OPTIONS']['url']" in str(found[0].hint)


class TestTransactional:
    def test_a_task_that_wants_to_commit_with_its_writes_is_refused_where_it_is_written(self) -> None:
        with (
            override_settings(TASKS={"default": {"BACKEND": REDIS}}),
            pytest.raises(compat.InvalidTask, match="Invalid transactional=True"),
        ):
            task(transactional=True)(tasks.add.func)

    def test_and_where_it_is_sent_here(self) -> None:
        entries = {"default": {"BACKEND": "djqueue.backends.PostgresBackend"}, "redis": {"BACKEND": REDIS}}
        with override_settings(TASKS=entries):
            elsewhere = task(transactional=True)(tasks.add.func)

            with pytest.raises(
                compat.InvalidTask, match=r"tests\.app\.tasks\.add: the jobs of 'redis' are not in a database"
            ):
                elsewhere.using(backend="redis")

    def test_wrong_options_do_not_keep_a_module_from_being_imported(self) -> None:
        with override_settings(TASKS={"default": {"BACKEND": REDIS, "OPTIONS": {"url": 3}}}):
            copy = tasks.add.using(priority=1)

            with pytest.raises(InvalidOptions, match="'url'"):
                copy.enqueue(1)


class TestContract:
    def test_a_backend_opens_no_connection_and_parses_nothing_before_it_must(self) -> None:
        made = RedisStore("other", {"OPTIONS": {"url": "redis://user:secret@127.0.0.1:1/7", "prefix": "shop"}})

        assert made.queues == {"default"}
        assert made.engine.store == "redis:127.0.0.1:1/7 shop"
        assert made.engine is RedisStore("again", made_params()).engine


def made_params() -> dict[str, Any]:
    return {"OPTIONS": {"url": "redis://user:secret@127.0.0.1:1/7", "prefix": "shop"}}
