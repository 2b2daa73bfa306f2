from __future__ import annotations

import sys
import time

print("The models are being loaded.", file=sys.stderr, flush=True)
time.sleep(600)
