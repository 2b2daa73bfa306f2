from __future__ import annotations

import sys
import time

print("The slow import has begun.", file=sys.stderr, flush=True)
time.sleep(600)
