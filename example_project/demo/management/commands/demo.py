import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from rich.console import Console

from demo.login import PASSWORD, USERNAME
from demo.processes import leave_on_sigterm
from demo.show import Show, Size


class Command(BaseCommand):
    help = "Let two worker processes do a few thousand real jobs, check their work, and print what they did."
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--patience", type=float, default=180, help="Seconds without a finished job after which the demo gives up."
        )
        parser.add_argument("--small", action="store_true", help="A tenth of the jobs, for a quick look.")

    def handle(self, *args: Any, patience: float, small: bool, **options: Any) -> None:
        leave_on_sigterm()
        # Django's wrapper of stdout would end every write with a line break, and so every frame of the progress bar.
        self.stdout.ending = ""
        # Width: where there is no terminal, the table must not be folded to the 80 columns that rich assumes.
        console = Console(file=self.stdout, soft_wrap=False)
        if not console.is_terminal:
            console.width = 120
        size = Size(every=10, postcards=20, weather=100, bookings=40) if small else Size()
        try:
            Show(console, size, patience_seconds=patience).run()
        except KeyboardInterrupt:
            console.print("Stopped. The worker has ended; run the demo again whenever you like.")
            raise SystemExit(130) from None
        chosen = "DJQUEUE_BACKEND=redis " if os.environ.get("DJQUEUE_BACKEND") == "redis" else ""
        console.print(
            f"See it in the browser: [bold]{chosen}python3 run.py serve[/], then http://127.0.0.1:8000/admin/ "
            f"(login {USERNAME}, password {PASSWORD}).",
            highlight=False,
            soft_wrap=True,
        )
