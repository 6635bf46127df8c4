"""A claimed job as the worker carries it: a plain object, no model instance."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django_jobs.models.picking import to_uuid


@dataclass(slots=True)
class Run:
    """One claim of one job. ``lease`` is the token that every write of this run must carry."""

    id: UUID
    run_id: UUID
    name: str
    queue: str
    priority: int
    run_at: object
    """The due time as the engine returns it; only ever handed back to the engine."""
    tenant: str
    payload: str | None
    """JSON text, or ``None`` when it is so large that it is read when the body starts."""
    attempt: int
    max_attempts: int
    crashes: int
    timeout: float | None
    traceparent: str
    enqueued_by: str
    lane: str | None
    lane_token: int | None
    lease: UUID
    worker: str
    claimed_at: float = field(default_factory=time.monotonic)
    began_at: float | None = None
    """When its body began (``time.monotonic()``, as ``claimed_at``)."""

    @classmethod
    def of(cls, row: tuple[Any, ...], lease: UUID, worker: str) -> Run:
        """A row that the claim returned."""
        ids = (to_uuid(row[0]), to_uuid(row[1]))
        return cls(*ids, *row[2:], lease, worker)  # type: ignore[call-arg]
