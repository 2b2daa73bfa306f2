"""What does a line of ``manage.py bulkinsert`` cost: seconds, CPU of the command and of the database, memory?"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import helper
from bench.harness import processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--format", choices=("jsonl", "csv"), default="jsonl")
    parser.add_argument("--dry-run", action="store_true", help="read and check only")
    options = parser.parse_args()
    helper.setup()
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
        row = cursor.fetchone()
    postmaster = int(processes._fields(row[0])[1]) if row else 0
    print(helper.describe())
    with tempfile.TemporaryDirectory(prefix="bench-bulkinsert-", dir="/var/tmp") as directory:
        path = Path(directory) / f"lines.{options.format}"
        write(path, options.lines, options.format)
        print(f"{options.lines:,} lines, {path.stat().st_size / options.lines:.0f} bytes each")
        command = [sys.executable, "-m", "django", "bulkinsert", "bench.tasks.greet", str(path), "--no-progress"]
        if options.format == "csv":
            command += ["--map", "user_id=user_id:int", "--map", "email=email", "--map", "name=name"]
        if options.dry_run:
            command.append("--dry-run")
        rates, clients, servers = [], [], []
        for _ in range(options.repeat):
            helper.empty()
            helper.checkpoint()
            server, client, began = processes.tree_cpu(postmaster), children_cpu(), time.perf_counter()
            subprocess.run(command, check=True, env={**os.environ, "DJANGO_SETTINGS_MODULE": "bench.settings"})
            rates.append(options.lines / (time.perf_counter() - began))
            clients.append((children_cpu() - client) * 1e6 / options.lines)
            servers.append((processes.tree_cpu(postmaster) - server) * 1e6 / options.lines)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"{helper.spread(rates)} lines/s; CPU per line: command {statistics(clients)} µs, server {statistics(servers)} µs;"
        f" largest process {memory:,.0f} MiB"
    )


def write(path: Path, lines: int, format: str) -> None:
    with path.open("w") as file:
        if format == "csv":
            file.write("user_id,email,name\n")
        for n in range(lines):
            if format == "csv":
                file.write(f"{n},user{n}@example.com,User {n}\n")
            else:
                file.write(f'{{"user_id": {n}, "email": "user{n}@example.com", "name": "User {n}"}}\n')


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def statistics(values: list[float]) -> str:
    return f"{sorted(values)[len(values) // 2]:.1f} ({min(values):.1f}–{max(values):.1f})"


if __name__ == "__main__":
    main()
