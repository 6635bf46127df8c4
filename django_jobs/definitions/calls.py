"""What a caller may say about one call, what goes to the database, and what comes back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from django_jobs.durations import LONGEST, seconds
from django_jobs.errors import EnqueueError
from django_jobs.keys import MAX_QUEUE, MAX_TENANT, plain_text

OnConflict = Literal["dedupe", "error"]

PRIORITIES = range(-32_768, 32_768)
"""What the priority column holds. Smaller runs first."""
MAX_ACTOR = 200
"""Characters of ``enqueued_by``."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What ``using()`` has set for a call; ``None`` leaves the declaration's value.

    ``delay`` is in seconds. Raises ``KeyRefused`` or ``EnqueueError`` for values that cannot work.
    """

    queue: str | None = None
    delay: float | timedelta | None = None
    run_at: datetime | None = None
    tenant: str | None = None
    priority: int | None = None
    on_conflict: OnConflict | None = None
    database: str | None = None
    enqueued_by: str | None = None
    bypass: bool | None = None

    def __post_init__(self) -> None:
        self._check_texts()
        self._check_time()
        if self.priority is not None and not is_priority(self.priority):
            raise EnqueueError(
                f"priority={self.priority!r} is no whole number from {PRIORITIES[0]:,} to "
                f"{PRIORITIES[-1]:,}."
            )
        if self.on_conflict not in (None, "dedupe", "error"):
            raise EnqueueError(f'on_conflict={self.on_conflict!r} must be "dedupe" or "error".')
        if self.bypass not in (None, True, False):
            raise EnqueueError(f"bypass={self.bypass!r} must be True or False.")

    def replaced(self, **given: Any) -> CallOptions:
        """These options with those of ``given`` that are not ``None``."""
        return dataclasses.replace(self, **{k: v for k, v in given.items() if v is not None})

    def _check_texts(self) -> None:
        if self.queue is not None:
            plain_text(self.queue, "queue", chars=MAX_QUEUE)
        if self.tenant is not None:
            plain_text(self.tenant, "tenant", chars=MAX_TENANT)
        if self.enqueued_by is not None:
            plain_text(self.enqueued_by, "enqueued_by", chars=MAX_ACTOR)
        if self.database is not None:
            plain_text(self.database, "database")

    def _check_time(self) -> None:
        if self.delay is not None:
            length = seconds(self.delay)
            if length is None or length > LONGEST:
                raise EnqueueError(
                    f"delay={self.delay!r} is no number of seconds (or timedelta) from 0 to "
                    f"{LONGEST:,.0f}."
                )
            object.__setattr__(self, "delay", length)
        if self.run_at is None:
            return
        if self.delay is not None:
            raise EnqueueError("delay and run_at exclude each other; give one of them.")
        if not isinstance(self.run_at, datetime):
            raise EnqueueError(f"run_at={self.run_at!r} is no datetime.")
        if self.run_at.utcoffset() is None:
            raise EnqueueError(
                f"run_at={self.run_at!r} has no time zone, so it is no point in time. Use "
                "django.utils.timezone.make_aware(...), or give delay= instead."
            )


def is_priority(value: object) -> bool:
    """Whether the priority column can hold ``value``."""
    return isinstance(value, int) and not isinstance(value, bool) and value in PRIORITIES


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call, checked and derived in full before any statement runs.

    ``idempotency_key`` is ``None`` for ``PER_CALL``, ``lane`` for no lane, ``tenant`` is ``""``
    for none; ``delay`` and ``timeout`` are seconds, ``database`` is the alias that was asked for.
    (A Struct is made in a tenth of the time of a frozen dataclass, and one is made for each call.)
    """

    name: str
    queue: str
    priority: int
    tenant: str
    idempotency_key: str | None
    lane: str | None
    payload: str
    run_at: datetime | None
    delay: float | None
    max_attempts: int
    timeout: float | None
    on_conflict: OnConflict
    database: str | None
    enqueued_by: str
    bypass: bool


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer to an enqueue.

    - ``staged``: the job will exist if the open transaction commits and once its queue has room
      (``MAX_READY``). Whether it is then new or stands for a live one is not known yet.
    - ``published``: the job exists.
    - ``deduped``: a live job with this key exists already; nothing was added.

    ``id`` can be looked up, cancelled and waited for in every case. ``job_id`` is the row, where
    it is known.
    """

    id: UUID
    status: Literal["staged", "published", "deduped"]
    job_id: UUID | None = None

    @property
    def deduped(self) -> bool | None:
        """Whether another job stands for this call; ``None`` while that is not known."""
        return None if self.status == "staged" else self.status == "deduped"
