"""``python -m bench NAME [options]``: run one of the benchmarks."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

NAMES = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if path.stem not in ("__init__", "__main__", "helper", "settings", "tasks")
)

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        sys.exit(f"Which one? {', '.join(NAMES)}")
    name = sys.argv.pop(1)
    runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=True)
