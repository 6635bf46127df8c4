"""What the calls of a lane answer."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claimed:
    """The lane is the caller's. ``previous`` held it before; the same when the call is repeated.

    It is the caller itself when an older claim of its own held the lane.
    """

    previous: str | None


@dataclass(frozen=True, slots=True)
class Displaced:
    """A greater token stands, and ``holder`` has it.

    ``None``: this very claim was released, or has finished.
    """

    holder: str | None


@dataclass(frozen=True, slots=True)
class Started:
    """Nothing newer is known; the lane is the caller's."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """Something newer was claimed; ``by`` is its holder. Do not begin."""

    by: str


@dataclass(frozen=True, slots=True)
class Held:
    """Nothing newer is known; the claim is renewed."""


@dataclass(frozen=True, slots=True)
class Usurped:
    """Something newer was claimed; ``by`` is its holder. Stop."""

    by: str


class Release(enum.Enum):
    """What became of the lane when a claim was taken out."""

    RESTORED = "restored"
    """The greatest claim that remains holds it again, with its own expiry."""
    VACATED = "vacated"
    """Nobody holds it."""
    REPOINTED = "repointed"
    """It was another's already, and stays so; who was superseded by us is so by the next one."""
    NOT_MINE = "not_mine"
    """There was no such claim (any more)."""
    UNKNOWN = "unknown"
    """The server did not answer; the failure is logged. The claim ends by its expiry."""


@dataclass(frozen=True, slots=True)
class Released:
    """``holder``: who holds the lane now, as far as the release knows."""

    outcome: Release
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lane. ``expires_in``: seconds until the claim lapses unless it is renewed."""

    holder: str
    token: int
    expires_in: float
