"""Reasons why a control verb skipped a job, worded the same for every store."""

from __future__ import annotations

from collections.abc import Collection

from djqueue.jobs.states import FINAL_STATES, LIVE_STATES

BY_LENGTH = 255
REASON_LENGTH = 2000
LOST = "The worker was lost."
FINAL = frozenset(state.value for state in FINAL_STATES)
WAITING = frozenset(state.value for state in LIVE_STATES) - {"executing"}
CANCELLABLE = frozenset(state.value for state in LIVE_STATES)
RETRYABLE = FINAL | {"scheduled", "retryable"}
MISSING = ("no such job", None)
IN_FLOW = ("belongs to a workflow", None)
TOO_FAST = ("changing too fast, try again", None)


def why_not(
    state: str | None,
    held_by: int | None,
    eligible: Collection[str],
    *,
    needs_key: bool = False,
    is_of_flow: bool = False,
) -> tuple[str, int | None]:
    """Return why a job was skipped, in a few words, and the id of the job that holds the key it needs.

    ``is_of_flow``: it has finished, and belongs to a workflow or waited for one, or one waited for it.
    """
    if state is None:
        return MISSING
    if needs_key and is_of_flow and state in eligible:
        return IN_FLOW
    if needs_key and held_by is not None and state in eligible:
        return f"unique key held by job {held_by}", held_by
    if state in eligible:
        return TOO_FAST
    if state in FINAL:
        return f"already {state}", None
    return ("waiting for other jobs" if state == "suspended" else state), None


def who_and_why(act: str, by: str, reason: str) -> tuple[str, str]:
    """Return who requested an action, and why, as they are stored. A missing reason is replaced by a default text."""
    who = clean(by, BY_LENGTH).strip()
    return who, clean(reason, REASON_LENGTH).strip() or (f"{act} by {who}." if who else f"{act} on request.")


def clean(text: str, length: int | None = None) -> str:
    """Make a text storable: replace NUL and lone surrogates, and cut it to ``length`` characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")[:length]
