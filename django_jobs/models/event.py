"""Events: stored when they are emitted, matched to those who wait after their commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from django_jobs import conf
from django_jobs.models import picking
from django_jobs.models.job import Job


@dataclass(frozen=True, slots=True)
class Waits:
    """Whether events are unmatched, parents wait for jobs, and answers have woken nobody yet."""

    events: bool
    parents: bool
    answers: bool


class EventQuerySet(models.QuerySet["Event"]):
    """The statements on events, in the jobs' own database."""

    def emit(
        self, name: str, payload: str, *, tenant: str, match: str | None, expires: float
    ) -> int:
        """Insert an event that counts for ``expires`` seconds; its number."""
        until = Now() + timedelta(seconds=expires)
        values: dict[str, Any] = {"tenant": tenant, "match": match, "expires_at": until}
        return self.create(name=name, payload=payload, **values).seq

    def earliest_for(
        self, job_id: UUID, name: str, match: str | None, tenant: str, taken: Iterable[int]
    ) -> tuple[int, str] | None:
        """Number and payload of the earliest event since the job was enqueued, unless taken."""
        enqueued = Job.objects.using(self.db).filter(id=job_id).values("created_at")
        found = self.filter(name=name, tenant=tenant, expires_at__gt=Now())
        found = found.filter(emitted_at__gte=models.Subquery(enqueued)).exclude(seq__in=list(taken))
        if match is not None:
            found = found.filter(match=match)
        return found.order_by("seq").values_list("seq", "payload").first()

    def waits(self) -> Waits:
        """What there is to match, to look at and to wake for; one statement, no locks."""
        return Waits(*(bool(one) for one in picking.run(self.db, "waits", {})[0]))

    def match(self, limit: int) -> tuple[int, int]:
        """Answer the steps that wait for events not looked at yet; how many events, and steps.

        In commit visibility: an event is looked at once it can be seen, however old its number.
        """
        with picking.own_transaction(self.db):
            fresh = [row[0] for row in picking.run(self.db, "fresh_events", {"limit": limit})]
            if not fresh:
                return 0, 0
            seqs = {"seqs": picking.numbers(self.db, fresh)}
            answered = picking.run(self.db, "answer", seqs)
            picking.run(self.db, "matched", seqs)
        return len(fresh), len(answered)

    def answer_parents(self, limit: int) -> list[UUID]:
        """Answer the steps whose jobs have ended; the jobs that waited."""
        rows = picking.run(self.db, "answer_parents", {"limit": limit})
        return [picking.to_uuid(row[0]) for row in rows]

    def prune(self, limit: int) -> int:
        """Delete up to ``limit`` events that count no more."""
        with picking.own_transaction(self.db):
            old = self.filter(expires_at__lt=Now(), matched_at__isnull=False)
            seqs = old.order_by("expires_at").select_for_update(skip_locked=True)
            gone = list(seqs.values_list("seq", flat=True)[:limit])
            return self.filter(seq__in=gone).delete()[0]


class EventManager(models.Manager.from_queryset(EventQuerySet)):  # type: ignore[misc]
    """Reads and writes the jobs' own database, as that of the jobs does."""

    def get_queryset(self) -> EventQuerySet:
        """All events, in the jobs' own database."""
        rows: EventQuerySet = super().get_queryset().using(self._db or conf.current().database)
        return rows


class Event(models.Model):
    """Something that happened. Its order is ``seq``, drawn by the database."""

    seq = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=200)
    tenant = models.CharField(max_length=200, db_default="", blank=True)
    match = models.CharField(max_length=512, null=True, blank=True)
    payload = models.TextField(help_text="JSON text.")
    emitted_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    matched_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[EventManager] = EventManager()

    class Meta:
        indexes = (
            models.Index(
                name="django_jobs_event_fresh", fields=("seq",), condition=Q(matched_at=None)
            ),
            models.Index(name="django_jobs_event_name", fields=("tenant", "name", "seq")),
            models.Index(name="django_jobs_event_expiry", fields=("expires_at",)),
        )

    def __str__(self) -> str:
        return f"event {self.name} #{self.seq}"
