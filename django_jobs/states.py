"""The states of a job and the moves between them, and those of a backfill's pass: the only lists.

Every move is one method on ``JobQuerySet``; its guard is the ``sources`` written here.
The database holds the same list in a check constraint.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a job stands. The value is what the ``state`` column stores."""

    READY = "ready"
    DELAYED = "delayed"
    RUNNING = "running"
    SUSPENDED = "suspended"
    DONE = "done"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"


LIVE = (State.READY, State.DELAYED, State.RUNNING, State.SUSPENDED)
"""The states in which a job holds its idempotency key."""

FINISHED = (State.DONE, State.FAILED, State.DEAD, State.CANCELLED)
"""The states in which a job is history."""


@dataclass(frozen=True, slots=True)
class Move:
    """A legal change of state.

    ``sources`` are the states it may start from, ``targets`` those it may end in. ``fenced``
    says that the statement must carry the lease token of the run that makes the move.
    """

    name: str
    sources: tuple[State, ...]
    targets: tuple[State, ...]
    fenced: bool = False


CLAIM = Move("claim", (State.READY,), (State.RUNNING,))
SUCCEED = Move("succeed", (State.RUNNING,), (State.DONE,), fenced=True)
RETRY = Move("retry", (State.RUNNING,), (State.DELAYED, State.READY), fenced=True)
SUSPEND = Move("suspend", (State.RUNNING,), (State.SUSPENDED,), fenced=True)
SHED = Move("shed", (State.RUNNING,), (State.READY,), fenced=True)
BURY = Move("bury", (State.RUNNING,), (State.DEAD, State.FAILED), fenced=True)
LAPSE = Move("lapse", (State.RUNNING,), (State.READY, State.DEAD))
WAKE = Move("wake", (State.DELAYED, State.SUSPENDED), (State.READY,))
CANCEL = Move("cancel", LIVE, (State.CANCELLED,))
SUPERSEDE = Move("supersede", LIVE, (State.CANCELLED,))
REQUEUE = Move("requeue", FINISHED, (State.READY,))

MOVES = (
    CLAIM,
    SUCCEED,
    RETRY,
    SUSPEND,
    SHED,
    BURY,
    LAPSE,
    WAKE,
    CANCEL,
    SUPERSEDE,
    REQUEUE,
)

REQUEUED_UNASKED = (State.DEAD, State.FAILED)
"""What a retry takes back without being told to: ``cancelled`` and ``done`` need ``force``."""


class PassState(StrEnum):
    """Where one pass of a backfill stands. A pass whose workers died is still ``running``."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_PASSES = (PassState.RUNNING, PassState.PAUSED)
"""The states in which a pass keeps another of its name and tenant from starting."""
