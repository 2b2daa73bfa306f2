"""Make a worker's log readable without any LOGGING setting, and leave it alone where there is one."""

from __future__ import annotations

import logging
import sys

_LEVELS = {0: logging.WARNING, 1: logging.INFO}


def configure(verbosity: int) -> None:
    """Show the ``djqueue`` logger on standard error: warnings (0), every outcome (1), every start too (2, 3).

    ``django.tasks`` says the same once more in other words; unless the project gave it a level, only its warnings
    are let through.
    """
    logger = logging.getLogger("djqueue")
    if logger.level == logging.NOTSET:
        logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    for name in ("django.tasks", "django_tasks"):
        tasks = logging.getLogger(name)
        if tasks.level == logging.NOTSET:
            tasks.setLevel(logging.WARNING)
