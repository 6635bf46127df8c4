"""What the job system tells and asks about its lanes: hints, never decisions.

Nothing here raises, and nothing blocks longer than ``LANES_TIMEOUT``: without a server (none
configured, none reachable) every answer is "go on", and the heartbeat on the job's row finds out
later what a signal would have told at once. ``Advice.LOOK`` and ``beat`` name jobs whose row should
be asked; only the row ends a run.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Claim:
    """One job's claim on its lane. ``delay``: seconds until the job is due.

    Raises ``ValueError`` for a token or a delay that is no finite number from 0 up.
    """

    name: str
    tenant: str
    lane: str
    job_id: UUID
    token: int
    delay: float = 0.0


class Advice(enum.Enum):
    """``GO``: nothing newer is known. ``LOOK``: ask the job's row before going on."""

    GO = "go"
    LOOK = "look"


def available() -> bool:
    """Whether signals can be expected to arrive: a server is configured and answered last."""
    return False


def claim_many(claims: Sequence[Claim]) -> None:
    """Tell that these jobs were published: one round trip, after the commit."""


def reclaim(claims: Sequence[Claim]) -> None:
    """Claim although a greater token stands: the row says that the key has another history."""


def start(claim: Claim) -> Advice:
    """A job is about to run: claim its lane, and hear whether something newer is known."""
    return Advice.GO


def beat(claims: Sequence[Claim]) -> set[UUID]:
    """Keep the claims of running jobs, in one round trip; the ids whose row should be asked."""
    return set()


def finish(claims: Sequence[Claim]) -> None:
    """These jobs have ended for good: neither they nor anything older waits in their lanes."""
