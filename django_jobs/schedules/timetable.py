"""A declared schedule: which job runs when, and with which arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from django_jobs import definitions
from django_jobs.definitions import Definition, Request
from django_jobs.definitions.calls import MAX_ACTOR
from django_jobs.errors import EnqueueError
from django_jobs.keys import text_of
from django_jobs.schedules.cadence import Cadence

Missed = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip", "queue_one", "supersede"]

OCCURRENCE = "{occurrence}"
TENANT = "{tenant}"


def as_datetime(occurrence: datetime) -> object:
    """The occurrence itself."""
    return occurrence


def as_date(occurrence: datetime) -> object:
    """Its day in the schedule's zone."""
    return occurrence.date()


def as_text(occurrence: datetime) -> object:
    """Its ISO 8601 text."""
    return occurrence.isoformat()


@dataclass(frozen=True, slots=True)
class Timetable:
    """The checked values of one ``@schedule``.

    ``jitter`` is in seconds. ``shown`` says what the argument ``{occurrence}`` becomes.
    """

    name: str
    definition: Definition[..., Any]
    cadence: Cadence
    missed: Missed = "skip"
    max_catch_up: int = 10
    overlap: Overlap = "allow"
    jitter: int = 0
    per_tenant: Callable[[], Iterable[Any]] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    shown: Callable[[datetime], object] = as_datetime

    def tenants(self) -> list[Any]:
        """For whom an occurrence is due: each tenant once, ``None`` for a job without them."""
        if self.per_tenant is None:
            return [None]
        return list({text_of(tenant): tenant for tenant in self.per_tenant()}.values())

    def request(self, occurrence: datetime, tenant: Any, *, mark: str = "") -> Request:
        """The call of one occurrence, checked; raises ``EnqueueError`` as ``enqueue`` does.

        Its key is the occurrence's: no two occurrences are the same work, and one that is staged
        again while it is live is answered with the live one. ``mark`` tells apart what is run out
        of turn.
        """
        definition = self.definition.using(
            tenant=None if tenant is None else text_of(tenant),
            run_at=occurrence + self.delay(tenant),
            enqueued_by=f"schedule:{self.name}"[:MAX_ACTOR],
            bypass=True,
        )
        request = definitions.request_of(definition, (), self.call(occurrence, tenant))
        key = f"{self.name}@{stamp(occurrence)}{mark}"
        lane = f"schedule:{self.name}" if self.overlap == "supersede" else request.lane
        return msgspec.structs.replace(request, idempotency_key=key, lane=lane)

    def call(self, occurrence: datetime, tenant: Any) -> dict[str, Any]:
        """The arguments of one occurrence."""
        local = occurrence.astimezone(self.cadence.zone)
        return {name: self._filled(value, local, tenant) for name, value in self.arguments.items()}

    def _filled(self, value: Any, local: datetime, tenant: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value == OCCURRENCE:
            return self.shown(local)
        if value == TENANT:
            return tenant
        text = value.replace(OCCURRENCE, local.isoformat())
        return text if tenant is None else text.replace(TENANT, text_of(tenant))

    def delay(self, tenant: Any) -> timedelta:
        """How long after its occurrence the job is due: the same for a tenant at each of them."""
        if not self.jitter:
            return timedelta(0)
        who = f"{self.name}\n{'' if tenant is None else text_of(tenant)}"
        number = int.from_bytes(hashlib.blake2b(who.encode(), digest_size=8).digest())
        return timedelta(seconds=number % (self.jitter + 1))


def stamp(occurrence: datetime) -> str:
    """An occurrence as keys name it: UTC, ``2026-03-29T01:00:00Z``."""
    return f"{occurrence.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def tenant_text(tenant: Any) -> str:
    """The tenant as rows carry it; ``""`` for none. Raises ``EnqueueError`` for an empty one."""
    if tenant is None:
        return ""
    text = text_of(tenant)
    if not text:
        raise EnqueueError("per_tenant= answered an empty tenant. Leave it out.")
    return text
