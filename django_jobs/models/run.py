"""A claimed job as the worker carries it: a plain object, no model instance."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from uuid import UUID


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
    lease: UUID
    worker: str
    claimed_at: float = field(default_factory=time.monotonic)
