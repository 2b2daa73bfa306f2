"""A pretend bank that is sometimes busy.

What it answers follows from the card and the attempt, so that anybody can watch a retry.
"""

import time

from bookings.models import Booking


class BankIsBusy(Exception):
    """Try again later."""


class CardRefused(Exception):
    """Trying again will not help."""


def charge(card: str, euros: int, *, reference: str, attempt: int) -> str:
    """Charge a card and return the receipt.

    ``reference`` makes it safe to ask twice: a bank books the same reference once. Use that wherever a
    service offers it, because a job may run again after a crash.
    """
    time.sleep(0.01)  # the way to the bank and back
    if card == Booking.Card.EXPIRED:
        raise CardRefused("The card has expired.")
    if card == Booking.Card.BUSY and attempt < 3:
        raise BankIsBusy(f"The bank is busy (attempt {attempt}).")
    return f"{reference}-{euros}"
