"""Show progress: one bar on a terminal, plain lines elsewhere."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.jobs import Tally

SECONDS_BETWEEN_LINES = 3


class Bar:
    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("jobs"),
            TimeElapsedColumn(),
            console=console,
        )
        self.bar = self.progress.add_task("  done", total=None)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.progress.stop()

    def show(self, tally: Tally, *, has_ended: bool) -> None:
        self.progress.update(self.bar, total=tally.enqueued, completed=tally.ended)


class Lines:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.next_line_at = 0.0
        self.last = (-1, -1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def show(self, tally: Tally, *, has_ended: bool) -> None:
        now = (tally.enqueued, tally.ended)
        is_due = time.monotonic() >= self.next_line_at or has_ended
        if is_due and now != self.last:
            self.last = now
            self.next_line_at = time.monotonic() + SECONDS_BETWEEN_LINES
            self.console.print(f"  {tally.enqueued:>5} enqueued, {tally.ended:>5} done", highlight=False)


def progress(console: Console) -> Bar | Lines:
    return Bar(console) if console.is_terminal else Lines(console)
