"""Read a DATABASE_URL with the standard library alone."""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def parse_url(url: str) -> dict[str, Any]:
    """Turn ``postgresql://user:password@host:port/name?option=value`` into an entry of DATABASES."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(f"DATABASE_URL must begin with postgresql://, not {parts.scheme}://.")
    options = dict(parse_qsl(parts.query))
    name = unquote(parts.path.lstrip("/")) or "postgres"
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or options.pop("user", "")),
        "PASSWORD": unquote(parts.password or options.pop("password", "")),
        "HOST": unquote(parts.hostname or options.pop("host", "")),
        "PORT": str(parts.port or options.pop("port", "")),
        "OPTIONS": options,
        "TEST": {"NAME": f"test_{name}_fernweh"},
    }
