"""What is declared against what the ledger says: the report that gates a deploy."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django_jobs import conf
from django_jobs.backfills import Backfill as Declaration
from django_jobs.backfills import backfills
from django_jobs.models import Backfill
from django_jobs.states import PassState

EXCLUDED, PENDING, STALE = "excluded", "pending", "stale"


@dataclass(frozen=True, slots=True)
class Standing:
    """One declared backfill (of one tenant).

    ``state``: ``excluded`` (not for this environment), ``completed``, ``pending`` (no pass),
    ``running``, ``stale`` (no job works on the running pass), ``paused``, ``failed``,
    ``cancelled``. ``changed``: its code is not what the pass ran.
    """

    name: str
    tenant: str
    state: str
    pass_id: UUID | None = None
    changed: bool = False
    requires: tuple[tuple[str, str], ...] = ()
    environments: tuple[str, ...] = ()

    @property
    def is_pending(self) -> bool:
        """Whether a deploy that needs its result must wait, and somebody must act."""
        return self.state in (PENDING, STALE, "paused", "failed", "cancelled")

    @property
    def is_open(self) -> bool:
        """Whether its result is not there yet, be it on its way."""
        return self.is_pending or self.state == "running"


@dataclass(frozen=True, slots=True)
class Report:
    """Every declared backfill. ``orphaned``: names in the ledger that nothing declares."""

    environment: str
    standings: list[Standing] = field(default_factory=list)
    orphaned: list[str] = field(default_factory=list)


def report() -> Report:
    """Every declared backfill against the ledger. Nothing is written, no source is read."""
    names = backfills()
    standings = [
        _standing(declared, tenant) for declared in names.values() for tenant in declared.tenants()
    ]
    known = Backfill.objects.order_by("name").values_list("name", flat=True).distinct()
    orphaned = [name for name in known if name not in names]
    return Report(conf.current().environment, standings, orphaned)


def shown_state(row: Any) -> str:
    """The state of a pass (with its progress): ``stale`` when it runs and no job works on it."""
    if row.state == PassState.RUNNING and not row.live:
        return STALE
    state: str = row.known_state.value
    return state


def share(row: Any) -> float | None:
    """How far a pass (with its progress) is, 0 to 1; ``None``: unknown.

    While it runs it is never quite all: what is expected is an estimate.
    """
    if row.state == PassState.COMPLETED:
        return 1.0
    handled: int = row.rows + row.skipped
    expected: int | None = row.expected
    return min(0.99, handled / expected) if expected else None


def seconds_left(row: Any, now: datetime) -> float | None:
    """How long a running pass may still take, by its pace since its start; ``None``: unknown."""
    handled: int = row.rows + row.skipped
    if row.state != PassState.RUNNING or not row.expected or not handled or not row.started_at:
        return None
    started: datetime = row.started_at
    left: int = row.expected - handled
    return max(0.0, (now - started).total_seconds() / handled * left)


def _standing(declared: Declaration, tenant: str) -> Standing:
    wanted = declared.declared.environments
    fixed: dict[str, Any] = {"requires": declared.declared.requires, "environments": wanted}
    if wanted and conf.current().environment not in wanted:
        return Standing(declared.name, tenant, EXCLUDED, **fixed)
    passes = Backfill.objects.all().with_progress().filter(name=declared.name, tenant=tenant)
    newest = passes.order_by("-created_at", "-id")
    row = newest.filter(state=PassState.COMPLETED).first() or newest.first()
    if row is None:
        return Standing(declared.name, tenant, PENDING, **fixed)
    changed = row.checksum != declared.checksum
    return Standing(declared.name, tenant, shown_state(row), row.pk, changed, **fixed)
