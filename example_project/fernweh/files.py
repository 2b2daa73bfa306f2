"""Write the files that tasks make."""

import os
import tempfile
from pathlib import Path

from django.conf import settings


def publish(name: str, content: bytes) -> str:
    """Write a file below MEDIA_ROOT and return its name.

    A job may run twice, even at the same time, and may be killed in the middle. So the content goes to a
    temporary file that replaces the old one in a single step: readers always see a whole file.
    """
    path = Path(settings.MEDIA_ROOT, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return name
