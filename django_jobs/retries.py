"""Whether a failed attempt is followed by another, and when."""

from __future__ import annotations

import logging
import random as _random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from django_jobs.durations import seconds
from django_jobs.errors import (
    DeadlinePassed,
    DeclarationError,
    PayloadError,
    ResultError,
    RetryAfter,
    SettingsError,
    Terminal,
)

logger = logging.getLogger(__name__)

Backoff = Literal["exponential", "linear", "fixed"] | Callable[[int], float | timedelta]
Reason = Literal["retry", "terminal", "attempts-exhausted"]

DEFAULT_BASE = 1.0
"""Seconds before the second attempt."""
DEFAULT_CAP = 3600.0
"""Seconds between two attempts at most."""
MOST_ATTEMPTS = 2**31 - 1
"""What the attempt column holds."""

HOPELESS = (
    *(Terminal, PayloadError, ResultError, DeclarationError, SettingsError),
    DeadlinePassed,
)
"""Errors that the same code meets again with the same row, however often it tries."""

_KINDS = ("exponential", "linear", "fixed")
_LARGEST_EXPONENT = 1000


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a job is tried and how long it waits in between.

    - ``max_attempts``: attempts in all, the first included.
    - ``backoff``: ``"exponential"`` waits base, 2 base, 4 base, …; ``"linear"`` base, 2 base,
      3 base, …; ``"fixed"`` always base. A callable gets the number of the attempt that failed
      (from 1) and returns seconds or a ``timedelta``; when it raises, or returns anything but a
      finite number that is at least 0, an error is logged and the exponential delay is taken.
    - ``base``, ``cap``: seconds or ``timedelta``. No delay is longer than ``cap``, also not one
      that a callable or ``RetryAfter`` asks for.
    - ``jitter``: half of each delay is random, so that jobs that failed together do not come
      back together. It applies to a callable's delays too.
    - ``dead_letter``: a job that is given up ends ``dead`` and is listed; ``False``: ``failed``.
    - ``terminal_on``: exception classes after which another attempt is pointless.

    Raises ``DeclarationError`` for values that cannot work.
    """

    max_attempts: int = 3
    backoff: Backoff = "exponential"
    base: float | timedelta = DEFAULT_BASE
    cap: float | timedelta = DEFAULT_CAP
    jitter: bool = True
    dead_letter: bool = True
    terminal_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        whole = isinstance(attempts, int) and not isinstance(attempts, bool)
        if not whole or not 1 <= attempts <= MOST_ATTEMPTS:
            raise _impossible("max_attempts", attempts, "a whole number, at least 1")
        if self.backoff not in _KINDS and not callable(self.backoff):
            raise _impossible("backoff", self.backoff, f"a callable or one of {', '.join(_KINDS)}")
        for name in ("base", "cap"):
            length = seconds(getattr(self, name))
            if length is None or (name == "cap" and length == 0):
                least = "above 0" if name == "cap" else "at least 0"
                raise _impossible(name, getattr(self, name), f"finite seconds, {least}")
            object.__setattr__(self, name, length)
        if not _are_exceptions(self.terminal_on):
            raise _impossible("terminal_on", self.terminal_on, "a tuple of exception classes")

    def delay(self, attempt: int, random: Callable[[], float] = _random.random) -> float:
        """Seconds to wait after attempt number ``attempt`` (from 1) failed: 0 to ``cap``."""
        full = self.full_delay(attempt)
        return full / 2 + full / 2 * random() if self.jitter else full

    def full_delay(self, attempt: int) -> float:
        """``delay`` without jitter."""
        attempt = max(1, min(attempt, MOST_ATTEMPTS))
        if callable(self.backoff):
            return self._ask(self.backoff, attempt)
        base, cap = _number(self.base), _number(self.cap)
        if self.backoff == "fixed":
            return min(cap, base)
        if self.backoff == "linear":
            return min(cap, base * attempt)
        return _exponential(base, cap, attempt)

    def clamped(self, asked: object) -> float | None:
        """A delay that somebody asked for, at most ``cap``; ``None`` when it is unusable."""
        length = seconds(asked)
        return None if length is None else min(_number(self.cap), length)

    def schedule(self) -> list[float]:
        """The delays between all attempts, in seconds, without jitter."""
        return [self.full_delay(attempt) for attempt in range(1, self.max_attempts)]

    def _ask(self, policy: Callable[[int], float | timedelta], attempt: int) -> float:
        try:
            answer: object = policy(attempt)
        except Exception:
            logger.exception("The backoff of a job raised; taking the default delay.")
            answer = None
        else:
            length = self.clamped(answer)
            if length is not None:
                return length
            logger.error("The backoff of a job returned %r; taking the default delay.", answer)
        return _exponential(DEFAULT_BASE, _number(self.cap), attempt)


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows a failed attempt: another in ``delay`` seconds, or the end, and why."""

    again: bool
    delay: float
    reason: Reason


def decide(policy: Retry, error: BaseException, attempt: int, max_attempts: int) -> Decision:
    """What follows after attempt ``attempt`` of ``max_attempts`` ended with ``error``.

    Exceptions, timeouts, lost workers and results that cannot be stored all ask here.
    ``max_attempts`` is the row's own: it was fixed when the job was enqueued.
    """
    if isinstance(error, (*HOPELESS, *policy.terminal_on)):
        return Decision(again=False, delay=0.0, reason="terminal")
    if attempt >= max_attempts:
        return Decision(again=False, delay=0.0, reason="attempts-exhausted")
    asked = policy.clamped(error.seconds) if isinstance(error, RetryAfter) else None
    delay = policy.delay(attempt) if asked is None else asked
    return Decision(again=True, delay=delay, reason="retry")


def told(decision: Decision, error: BaseException, attempt: int, max_attempts: int) -> str:
    """Why a job was given up, for people. What the error says is in the attempt's record."""
    name = type(error).__name__
    if decision.reason == "attempts-exhausted":
        return f"{attempt} of {max_attempts} attempts failed, the last with {name}"
    if isinstance(error, HOPELESS):
        return f"{name} is terminal: another attempt would meet it again"
    return f"{name} is terminal by the retry policy"


def _exponential(base: float, cap: float, attempt: int) -> float:
    # The exponent is bounded, since a float power that overflows raises instead of answering inf.
    return min(cap, base * 2.0 ** min(attempt - 1, _LARGEST_EXPONENT))


def _number(length: float | timedelta) -> float:
    """``base`` and ``cap`` are floats once the policy is built; this says so to the checker."""
    return length.total_seconds() if isinstance(length, timedelta) else length


def _are_exceptions(classes: object) -> bool:
    return isinstance(classes, tuple) and all(
        isinstance(cls, type) and issubclass(cls, Exception) for cls in classes
    )


def _impossible(name: str, value: object, expected: str) -> DeclarationError:
    return DeclarationError(f"Retry({name}={value!r}) cannot work; write {expected}.")
