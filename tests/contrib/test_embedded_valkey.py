from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from djqueue.contrib import embedded
from djqueue.contrib.embedded import process, valkey_server
from djqueue.contrib.embedded import server as servers
from tests.contrib.owners import start_owner

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")

VALKEY = "embedded.valkey({})"


def do(url: str, *command: object) -> object:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.execute_command(*command)


class TestServer:
    def test_it_starts_and_answers(self) -> None:
        with embedded.valkey() as server:
            assert do(server.url, "PING") is True
            assert server.url.startswith("redis://default:")

    def test_nothing_is_left_after_the_block(self) -> None:
        with embedded.valkey() as server:
            pid = server.pid

        assert pid is not None
        assert not process.is_alive(pid)
        assert not server.data_directory.parent.exists()

    def test_settings_reach_the_server(self) -> None:
        settings = {"maxmemory": "17mb", "appendonly": False, "save": "3600 1 300 100", "databases": 1, "timeout": 0}
        with embedded.valkey(settings=settings) as server:
            found = {name: do(server.url, "CONFIG", "GET", name)[name] for name in settings}  # type: ignore[index]

        assert found == {
            "maxmemory": str(17 * 1024 * 1024),
            "appendonly": "no",
            "save": "3600 1 300 100",
            "databases": "1",
            "timeout": "0",
        }

    def test_what_is_written_goes_to_a_file_that_reaches_the_disk_each_second_unless_settings_say_otherwise(
        self,
    ) -> None:
        with embedded.valkey() as server:
            found = do(server.url, "CONFIG", "GET", "append*", "save")

        assert found["appendonly"] == "yes"  # type: ignore[index]
        assert found["appendfsync"] == "everysec"  # type: ignore[index]
        assert found["save"] == ""  # type: ignore[index]

    def test_another_user_of_the_machine_needs_the_password(self) -> None:
        with embedded.valkey() as server:
            with pytest.raises(redis.AuthenticationError):
                do(f"redis://127.0.0.1:{server.port}/0", "PING")
            assert server.url.split(":")[2].split("@")[0] not in process.command_of(server.pid or 0)

    def test_two_servers_run_side_by_side(self) -> None:
        with embedded.valkey() as first, embedded.valkey() as second:
            do(first.url, "SET", "here", 1)

            assert first.port != second.port
            assert do(second.url, "GET", "here") is None

    @pytest.mark.parametrize("mode", ["fast", "immediate"])
    def test_restart_keeps_the_port_and_the_data(self, mode: servers.StopMode) -> None:
        with embedded.valkey(settings={"appendfsync": "always"}) as server:
            do(server.url, "SET", "kept", 1)
            before = (server.url, server.pid)

            server.restart(mode)

            assert server.url == before[0]
            assert server.pid != before[1]
            assert do(server.url, "GET", "kept") == "1"

    def test_a_stopped_server_is_down_until_it_is_started(self) -> None:
        with embedded.valkey() as server:
            server.stop("immediate")
            server.stop()
            assert server.pid is None
            with pytest.raises(redis.ConnectionError):
                do(server.url, "PING")

            server.start()
            server.start()

            assert do(server.url, "PING") is True

    def test_it_takes_commands_once_it_has_read_its_data(self) -> None:
        # Each key takes 20 µs more when it is read, so that the server is busy with it for a while.
        with embedded.valkey(settings={"key-load-delay": 20}) as server:
            do(server.url, "EVAL", "for i = 1, 30000 do redis.call('SET', i, i) end", 0)

            server.restart()

            assert do(server.url, "DBSIZE") == 30_000

    def test_a_wrong_setting_is_explained_in_the_servers_words(self) -> None:
        with pytest.raises(embedded.EmbeddedError, match="Bad directive"):
            with embedded.valkey(settings={"no-such-setting": 1}):
                pass

    def test_a_port_that_somebody_took_meanwhile_is_given_up_for_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with embedded.valkey() as first:
            ports = iter([first.port, process.free_port()])
            monkeypatch.setattr(servers, "free_port", lambda: next(ports))

            with embedded.valkey() as second:
                assert do(second.url, "PING") is True
                assert second.port != first.port


class TestKeptDirectory:
    def test_it_starts_again_with_its_data(self, directory: Path) -> None:
        with embedded.valkey(directory) as server:
            port = server.port
            do(server.url, "SET", "kept", 1)

        with embedded.valkey(directory) as server:
            assert do(server.url, "GET", "kept") == "1"
            assert server.port == port

    def test_a_stale_pid_file_naming_a_living_process_does_not_stop_it(self, directory: Path) -> None:
        with embedded.valkey(directory) as server:
            pid_file = server.data_directory / "server.pid"
        stranger = subprocess.Popen(["sleep", "60"])
        pid_file.write_text(f"{stranger.pid}\n")

        try:
            with embedded.valkey(directory) as server:
                assert do(server.url, "PING") is True
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()

    def test_a_second_process_joins_the_running_server(
        self, directory: Path, owners: list[subprocess.Popen[str]]
    ) -> None:
        with embedded.valkey(directory) as server:
            owners.append(start_owner(directory, server=VALKEY))
            url, pid, is_owner, _ = owners[0].stdout.readline().split()  # type: ignore[union-attr]
            owners[0].communicate()

            assert (url, int(pid), is_owner) == (server.url, server.pid, "False")
            assert do(server.url, "PING") is True

    def test_who_joined_cannot_stop_the_server(self, directory: Path, owners: list[subprocess.Popen[str]]) -> None:
        owners.append(start_owner(directory, server=VALKEY))
        url = owners[0].stdout.readline().split()[0]  # type: ignore[union-attr]

        with embedded.valkey(directory) as server:
            with pytest.raises(embedded.EmbeddedError, match="belongs to another process"):
                server.stop()

        assert do(url, "PING") is True

    def test_both_kinds_of_server_share_a_directory(self, directory: Path) -> None:
        with embedded.postgres(directory, settings={"fsync": False}) as database, embedded.valkey(directory) as store:
            assert database.data_directory.parent == store.data_directory.parent


@needs_linux
class TestKilledOwner:
    def test_its_server_ends_and_its_directory_starts_again(
        self, directory: Path, owners: list[subprocess.Popen[str]]
    ) -> None:
        owners.append(start_owner(directory, server=VALKEY))
        url, pid, *_ = owners[0].stdout.readline().split()  # type: ignore[union-attr]
        do(url, "SET", "kept", 1)

        owners[0].kill()

        with embedded.valkey(directory) as server:
            assert not process.is_alive(int(pid))
            assert do(server.url, "GET", "kept") == "1"

    def test_its_temporary_directory_is_removed_by_the_next(self, owners: list[subprocess.Popen[str]]) -> None:
        owners.append(start_owner(None, server=VALKEY))
        _, pid, _, data = owners[0].stdout.readline().split()  # type: ignore[union-attr]
        owners[0].kill()
        assert process.wait_until(lambda: not process.is_alive(int(pid)), timeout=30)

        with process.temporary_home():
            assert not Path(data).parent.exists()


class TestFindingPrograms:
    def test_without_any_server_the_error_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(valkey_server, "_packaged", list)
        monkeypatch.setenv("PATH", str(tmp_path))

        with pytest.raises(embedded.EmbeddedError, match="Install one from a package"):
            embedded.ValkeyServer()

    @pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
    def test_an_installed_server_is_found_without_the_package(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        packaged = valkey_server.find_program().path
        (tmp_path / name).symlink_to(packaged)
        monkeypatch.setattr(valkey_server, "_packaged", list)
        monkeypatch.setenv("PATH", str(tmp_path))

        with embedded.valkey() as server:
            assert do(server.url, "PING") is True

    @pytest.mark.parametrize(
        ("says", "complaint"),
        [
            ("Redis server v=6.0.16 sha=0", "is Redis 6.0, and djqueue needs 6.2 or newer"),
            ("Valkey server v=7.0.1 sha=0", "is Valkey 7.0, and djqueue needs 7.2 or newer"),
            ("KeyDB server v=6.3.4 sha=0", "neither Valkey nor Redis"),
            ("nothing", "cannot be used"),
        ],
    )
    def test_an_old_or_unknown_server_is_refused(
        self, says: str, complaint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(valkey_server, "version_of", lambda program: says)

        with pytest.raises(embedded.EmbeddedError, match=complaint):
            valkey_server.find_program("/usr/bin/some-server")

    @pytest.mark.skipif(process.unprivileged_id() is None, reason="only root has other users' rights")
    def test_a_program_that_the_servers_user_cannot_reach_is_copied(self, tmp_path: Path) -> None:
        hidden = tmp_path / "hidden" / "valkey-server"
        hidden.parent.mkdir()
        shutil.copy(valkey_server.find_program().path, hidden)
        hidden.parent.chmod(0o700)

        with embedded.valkey(program=hidden) as server:
            executable = Path(f"/proc/{server.pid}/exe").resolve()
            assert executable.is_relative_to(process.private_base())

        shutil.rmtree(executable.parent)
