"""Django's file-based mail backend, one file per connection."""

import uuid
from pathlib import Path

from django.core.mail.backends.filebased import EmailBackend


class FileBackend(EmailBackend):
    """Name every file uniquely.

    The original names it after the second and an address in memory, which two worker processes may well
    share; then their mails end in one file.
    """

    def _get_filename(self) -> str:
        if self._fname is None:
            self._fname = str(Path(self.file_path, f"{uuid.uuid4()}.eml"))
        return self._fname
