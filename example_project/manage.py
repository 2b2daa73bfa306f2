#!/usr/bin/env python
"""Django's command line for the example site."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # The example lives inside djqueue's repository and uses the djqueue beside it. A project of your own
    # installs the package instead.
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fernweh.settings")

    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
