"""Inspect a Redis or Valkey server: its version, whether it is safe for jobs, and what a crash would lose."""

from __future__ import annotations

import re
from collections.abc import Mapping

from djqueue.engines.redis.client import Client
from djqueue.exceptions import EngineDenied, EngineRefused
from djqueue.jobs.health import Concern, Inspection

_MAKE_ROOM = "Raise maxmemory, delete finished jobs (manage.py prunejobs, or a shorter 'retention'), or find out why jobs accumulate."
_OLDEST = {"Redis": (6, 2), "Valkey": (7, 2)}


def inspect(client: Client) -> Inspection:
    """Inspect the server that holds the keys."""
    # In a cluster this finds the node that has the keys.
    client.command("EXISTS", client.key + b"seq")
    # Without the permission to publish, a script would fail after some of its writes. No listener uses this message.
    client.command("PUBLISH", client.key + b"wake", b"")
    try:
        info = _parsed(client.command("INFO"))
    except (EngineRefused, EngineDenied):
        concern = Concern(
            id="djqueue.W003",
            text="INFO is not permitted, so djqueue cannot check whether the server persists jobs.",
            hint="Grant it: ACL SETUSER … +info. INFO reports the version, the eviction policy and the persistence.",
        )
        return Inspection(server="unknown", about={}, concerns=[concern])
    kind, version = _version(info)
    settings = _settings(client)
    persistence, risk = _persistence(info, settings)
    about = {
        "persistence": persistence,
        "eviction": info.get("maxmemory_policy", "unknown"),
        "memory": _memory(info),
        "role": "replica" if info.get("role") == "slave" else "primary",
        "cluster": "yes" if info.get("cluster_enabled") == "1" else "no",
    }
    concerns = [*_refusals(kind, version, info), *risk, *_warnings(info)]
    return Inspection(server=f"{kind} {version}", about=about, concerns=concerns)


def _parsed(answer: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in answer.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _settings(client: Client) -> dict[str, str]:
    """Return the settings of persistence, or none if CONFIG is not permitted."""
    found: dict[str, str] = {}
    for name in ("appendfsync", "save"):
        try:
            answer = [value.decode() for value in client.command("CONFIG", "GET", name)]
        except (EngineRefused, EngineDenied):
            return found
        found.update(zip(answer[::2], answer[1::2], strict=False))
    return found


def _version(info: Mapping[str, str]) -> tuple[str, str]:
    if "valkey_version" in info:
        return "Valkey", info["valkey_version"]
    return "Redis", info.get("redis_version", "of an unknown version")


def _refusals(kind: str, version: str, info: Mapping[str, str]) -> list[Concern]:
    concerns = []
    oldest = _OLDEST[kind]
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < oldest:
        concerns.append(
            Concern(
                id="djqueue.E007",
                text=f"The server is {kind} {version}; djqueue needs {kind} {oldest[0]}.{oldest[1]} or newer.",
                hint="Upgrade it: Redis from 6.2, Valkey from 7.2.",
                is_fatal=True,
            )
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        concerns.append(
            Concern(
                id="djqueue.W004",
                text=f"The server evicts keys when it is out of memory (maxmemory-policy {policy}): jobs would be lost.",
                hint="Set maxmemory-policy noeviction, and use another server for caches. Workers refuse to start.",
                is_fatal=True,
            )
        )
    return concerns


def _persistence(info: Mapping[str, str], settings: Mapping[str, str]) -> tuple[str, list[Concern]]:
    """Describe what is written to disk, and the risk if the server crashes."""
    if info.get("aof_enabled") == "1":
        fsync = settings.get("appendfsync", "unknown")
        if fsync != "no":
            return f"append-only file, fsync {fsync}", []
        text = "The operating system decides when the append-only file is written (appendfsync no): a crash loses about 30 seconds."
        return "append-only file, fsync no", [_risk(text)]
    if "save" not in settings:
        return "no append-only file", [
            _risk("The append-only file is off: a crash loses the last minutes, or all jobs.")
        ]
    if settings["save"] == "":
        return "none", [_risk("Persistence is off: a restart loses all jobs.")]
    text = "The server only writes snapshots: a crash loses everything since the last one, usually minutes."
    return "snapshots only", [_risk(text)]


def _risk(text: str) -> Concern:
    return Concern(
        id="djqueue.W005",
        text=text,
        hint="Set appendonly yes, with appendfsync everysec (a crash loses a second) or always (nothing).",
    )


def _warnings(info: Mapping[str, str]) -> list[Concern]:
    concerns = []
    if info.get("role") == "slave":
        concerns.append(
            Concern(
                id="djqueue.W006",
                text="The server is a read-only replica: nothing can be enqueued until it is promoted.",
                hint="Point the URL at the primary, or at a name or proxy that follows it.",
                keeps_jobs_out=True,
            )
        )
    # Any policy of fsync but "always", with which the server exits, makes it refuse writes. A snapshot depends on a setting.
    for name, key, refuses in (
        ("append-only file", "aof_last_write_status", True),
        ("snapshot", "rdb_last_bgsave_status", False),
    ):
        if info.get(key, "ok") != "ok":
            concerns.append(
                Concern(
                    id="djqueue.W007",
                    text=f"The server could not write its {name} when it last tried"
                    + (": it refuses all writes, and no job is enqueued or ends." if refuses else "."),
                    hint="Check its log and free disk space."
                    + ("" if refuses else " Until it succeeds, the server may refuse all writes."),
                    keeps_jobs_out=refuses,
                )
            )
    return concerns + _shortage(info)


def _shortage(info: Mapping[str, str]) -> list[Concern]:
    limit = int(info.get("maxmemory", 0))
    # Counted as the server does when it decides whether to refuse a command.
    used = int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))
    if not limit or used <= 0.9 * limit:
        return []
    if used <= limit:
        text = f"{100 * used / limit:.0f} % of the server's memory is in use; when it is full, nothing can be enqueued."
        return [Concern(id="djqueue.W008", text=text, hint=_MAKE_ROOM)]
    text = f"The server is out of memory ({_memory(info)}): nothing can be enqueued. Workers continue with the waiting jobs."
    return [Concern(id="djqueue.W008", text=text, hint=_MAKE_ROOM, keeps_jobs_out=True)]


def _memory(info: Mapping[str, str]) -> str:
    used = info.get("used_memory_human", "?")
    return f"{used} of {info.get('maxmemory_human', '?')}" if info.get("maxmemory", "0") != "0" else f"{used}, no limit"
