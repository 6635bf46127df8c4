"""What a claim may say; everything is checked before anything is sent."""

from __future__ import annotations

import math

BASE = 300
"""Seconds that a claim lasts beyond its delay, unless it is renewed."""

LONGEST_DELAY = 100 * 366 * 86_400
"""Seconds; what is due later has a claim as if it were due in a hundred years."""

GREATEST_TOKEN = 2**63 - 1
LONGEST_HOLDER = 512


def milliseconds_to_live(delay: float | None) -> int:
    """How long a claim lasts whose work is due in ``delay`` seconds: whole seconds, rounded up.

    Raises ``ValueError`` for what is no finite number from 0 up.
    """
    if delay is None:
        return BASE * 1000
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        raise ValueError(f"delay is {delay!r}; expected a number of seconds, 0 or more.")
    if not math.isfinite(delay) or delay < 0:
        raise ValueError(f"delay is {delay!r}; expected a finite number of seconds, 0 or more.")
    return (BASE + math.ceil(min(delay, LONGEST_DELAY))) * 1000


def token_text(token: int) -> str:
    """A token as 19 digits: texts of one length compare like the numbers that they stand for.

    Raises ``ValueError`` for what is no whole number from 0 to 2**63 - 1.
    """
    if isinstance(token, bool) or not isinstance(token, int):
        raise ValueError(f"token is {token!r}; expected a whole number.")
    if not 0 <= token <= GREATEST_TOKEN:
        raise ValueError(f"token is {token}; expected 0 to {GREATEST_TOKEN}.")
    return f"{token:019d}"


def plain(value: str, what: str, *, longest: int | None = None, empty: bool = False) -> str:
    """``value`` if it is text, of at most ``longest`` characters; raises ``ValueError``."""
    if not isinstance(value, str):
        raise ValueError(f"{what} must be text, not {type(value).__name__}.")
    if not value and not empty:
        raise ValueError(f"{what} is empty.")
    if longest is not None and len(value) > longest:
        raise ValueError(f"{what} has {len(value)} characters; at most {longest} are allowed.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} contains a lone surrogate, which is no valid text.") from None
    return value
