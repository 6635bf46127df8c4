"""The outbox: what callers staged in their transactions, until it has become a job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from django_jobs import conf
from django_jobs.models import picking
from django_jobs.models.lane import LaneKey
from django_jobs.models.turns import PLACE_TYPES, Claimed

PUBLISHED = "published"
DEDUPED = "deduped"
REFUSED = "refused_duplicate"
CANCELLED = "cancelled"
DISPLACED = "displaced"
SUPERSEDED = "superseded"
QUARANTINED = "quarantined"
OUTCOMES = (PUBLISHED, DEDUPED, REFUSED, CANCELLED, DISPLACED, SUPERSEDED, QUARANTINED)

ENTRY_TYPES: Mapping[str, str] = {
    "id": "uuid",
    "name": "text",
    "queue": "text",
    "priority": "smallint",
    "tenant": "text",
    "idempotency_key": "text",
    "lane": "text",
    "payload": "text",
    "run_at": "timestamptz",
    "delay": "float8",
    "max_attempts": "int",
    "timeout": "float8",
    "on_conflict": "text",
    "bypass": "bool",
    "traceparent": "text",
    "enqueued_by": "text",
    "release": "text",
    "batch": "uuid",
}
"""What a caller hands over for each job, with the PostgreSQL type of each."""

Entry = Mapping[str, Any]
"""One row of the columns of ``ENTRY_TYPES``."""

_COLUMNS = (
    *("seq", "on_conflict", "id", "name", "queue", "priority", "tenant", "idempotency_key"),
    *("lane", "payload", "run_at", "max_attempts", "timeout", "traceparent", "enqueued_by"),
    *("release", "staged_at"),
)
"""The columns of ``claimed.sql``."""


def _claimed(row: tuple[Any, ...]) -> Entry:
    entry = dict(zip(_COLUMNS, row, strict=True))
    entry["id"] = picking.to_uuid(entry["id"])
    entry["delay"] = None  # Staging has turned it into run_at.
    return entry


# A snapshot that is older than the statement may show a holder that has finished since;
# deduplicating onto it would lose the work. At other isolation levels publishing alone decides.
_FRESH = {
    True: "current_setting('transaction_isolation') = 'read committed'",
    False: "TRUE",
}

# Nor may an entry of a lane: a job that runs before this transaction commits would stand for it.
_UNLESS_LIVE = """AND NOT (called.lane IS NULL AND {fresh} AND EXISTS (
    SELECT 1 FROM django_jobs_job AS job
    WHERE job.name = called.name AND job.tenant = called.tenant
        AND job.idempotency_key = called.idempotency_key
        AND job.state IN ('ready', 'delayed', 'running', 'suspended')
))"""


class OutboxQuerySet(models.QuerySet["Outbox"]):
    """The statements of the outbox. Each works on the alias that the query set names."""

    def stage(self, entries: Sequence[Entry], *, unless_live: bool) -> set[UUID]:
        """Insert ``entries`` in the open transaction; the ids of those that went in."""
        source, parameters = picking.rows(self.db, ENTRY_TYPES, entries)
        fresh = _FRESH[picking.is_postgres(self.db)]
        unless = _UNLESS_LIVE.replace("{fresh}", fresh) if unless_live else ""
        staged = picking.run(self.db, "stage", parameters, called=source, unless_live=unless)
        return {picking.to_uuid(row[0]) for row in staged}

    def pending(self) -> OutboxQuerySet:
        """Entries that have not become anything yet, claimed or not."""
        return self.filter(outcome=None)

    def claim(
        self,
        token: UUID,
        *,
        limit: int,
        lease: float,
        places: Sequence[Mapping[str, Any]] = (),
    ) -> dict[int, Claimed]:
        """Lease up to ``limit`` entries for ``lease`` seconds: by ``seq``, ascending.

        Oldest first for each tenant of each queue, and these in turn. ``places``: rows of
        ``PLACE_TYPES``; a buffer that is not named has room.

        In a transaction of its own that commits before anything is published. Another relay
        that claims at this moment makes this one answer nothing.
        """
        with picking.own_transaction(self.db):
            # A lease that a crash of the server forgets leaves its entries unclaimed, no more:
            # publishing looks at it again. So its commit need not wait for the disk.
            if not picking.take_baton(self.db, "relay", durable=False):
                return {}
            source, parameters = picking.rows(self.db, PLACE_TYPES, places)
            # Beside jobs in another database nothing displaces an older entry of a lane.
            apart = self.db != conf.current().database
            parameters |= {"token": token, "limit": limit, "lease": lease, "apart": apart}
            rows = picking.run(self.db, "claim_entries", parameters, called=source)
            if not picking.is_postgres(self.db):  # The twin only chooses: it cannot tell the turn.
                self.filter(seq__in=[row[0] for row in rows]).update(
                    claimed_by=token, claimed_until=Now() + timedelta(seconds=lease)
                )
        claims = {}
        for seq, name, tenant, lane, queue, buffer, turn in sorted(rows):
            key = None if lane is None else LaneKey(name, tenant, lane)
            claims[seq] = Claimed(key, queue, buffer, tenant, turn)
        return claims

    def claimed(self, token: UUID, seqs: Collection[int]) -> list[Entry]:
        """The entries of a claim that are still ours and unpublished, locked, in order.

        Each is an ``Entry`` with its ``seq`` and ``staged_at``; ``batch`` is left out.
        """
        parameters = {"seqs": picking.numbers(self.db, seqs), "token": token}
        return [_claimed(row) for row in picking.run(self.db, "claimed", parameters)]

    def mark(self, token: UUID, standing: Mapping[int, tuple[str, UUID | None]]) -> int:
        """Retire claimed entries: for each ``seq`` its outcome and the job that stands for it.

        Returns how many were still ours; the first writer wins.
        """
        ours = self.filter(claimed_by=token, outcome=None)
        own = [seq for seq, (outcome, _) in standing.items() if outcome == PUBLISHED]
        parameters = {"seqs": picking.numbers(self.db, own), "token": token}
        marked = len(picking.run(self.db, "mark", parameters)) if own else 0
        for seq, (outcome, job_id) in standing.items():
            if outcome != PUBLISHED:
                marked += ours.filter(seq=seq).update(
                    outcome=outcome, job_id=job_id, published_at=Now()
                )
        return marked

    def release(self, token: UUID, seqs: Collection[int]) -> int:
        """Hand claimed entries back at once; how many were still ours."""
        if not seqs:
            return 0
        ours = self.filter(seq__in=seqs, claimed_by=token, outcome=None)
        return ours.update(claimed_by=None, claimed_until=None)

    def fail(self, token: UUID, seq: int, error: str, *, delay: float, limit: int) -> int:
        """Note a failure: back off for ``delay`` seconds, quarantine at the ``limit``-th."""
        ours = self.filter(seq=seq, claimed_by=token, outcome=None)
        failed = ours.update(
            attempts=F("attempts") + 1,
            last_error=error,
            next_try_at=Now() + timedelta(seconds=delay),
            claimed_by=None,
            claimed_until=None,
        )
        again = self.filter(seq=seq, outcome=None, attempts__gte=limit)
        again.update(outcome=QUARANTINED, next_try_at=None)
        return failed

    def quarantined_queues(self) -> list[str]:
        """The queues of which an entry is quarantined."""
        aside = self.filter(outcome=picking.constant(QUARANTINED)).order_by("queue")
        return list(aside.values_list("queue", flat=True).distinct())

    def revive(self, queue: str, *, limit: int) -> int:
        """Give the quarantined entries of ``queue`` one more chance, once; how many there were.

        They keep their ``attempts``: the next failure takes them above ``limit``, for good.
        """
        aside = self.filter(queue=queue, outcome=picking.constant(QUARANTINED))
        once = aside.filter(attempts__lte=limit)
        if self.db != conf.current().database:
            once = once.filter(lane=None)  # A newer one of its lane may have been published.
        return once.update(outcome=None, next_try_at=None)

    def unquarantine(self, ids: Iterable[UUID], *, by: str, reason: str) -> int:
        """Give quarantined entries a new set of tries; how many were quarantined."""
        quarantined = self.filter(id__in=list(ids), outcome=QUARANTINED)
        return quarantined.update(
            outcome=None,
            attempts=0,
            next_try_at=None,
            last_error="",
            retried_by=by,
            retry_reason=reason,
        )

    def cancel(self, entry_id: UUID, *, tenant: str | None, by: str, reason: str) -> int:
        """Retire an entry that is not published yet; 1 when it was, else 0."""
        rows = self.filter(Q(outcome=None) | Q(outcome=QUARANTINED), id=entry_id)
        if tenant is not None:
            rows = rows.filter(tenant=tenant)
        return rows.update(
            outcome=CANCELLED, cancelled_by=by, last_error=reason, published_at=Now()
        )


class Outbox(models.Model):
    """A staged enqueue. Its order is ``seq``, drawn by the database; ``id`` is the job's."""

    seq = models.BigAutoField(primary_key=True)
    id = models.UUIDField(unique=True)
    name = models.CharField(max_length=200)
    queue = models.CharField(max_length=100, db_default="default")
    priority = models.SmallIntegerField(db_default=0)
    tenant = models.CharField(max_length=200, db_default="", blank=True)
    idempotency_key = models.CharField(max_length=512)
    lane = models.CharField(max_length=512, null=True, blank=True)
    payload = models.TextField(help_text="JSON text, handed to the job as it is.")
    run_at = models.DateTimeField(null=True, blank=True, help_text="Empty: at once.")
    max_attempts = models.IntegerField(db_default=3)
    timeout = models.FloatField(null=True, blank=True)
    on_conflict = models.CharField(max_length=10, db_default="dedupe")
    traceparent = models.CharField(max_length=55, db_default="", blank=True)
    enqueued_by = models.CharField(max_length=200, db_default="", blank=True)
    release = models.CharField(max_length=100, db_default="", blank=True)
    buffer = models.CharField(
        max_length=100,
        db_default="",
        blank=True,
        help_text="Queue that must have room for it; empty: it is published at once.",
    )
    batch = models.UUIDField(help_text="The staging transaction; with the tenant, the order group.")
    staged_at = models.DateTimeField(db_default=Now(), help_text="For people; order is seq.")
    attempts = models.IntegerField(db_default=0)
    next_try_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(db_default="", blank=True)
    cancelled_by = models.CharField(max_length=200, db_default="", blank=True)
    retried_by = models.CharField(max_length=200, db_default="", blank=True)
    retry_reason = models.TextField(db_default="", blank=True)
    claimed_by = models.UUIDField(null=True, blank=True)
    claimed_until = models.DateTimeField(null=True, blank=True)
    published_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(
        max_length=20, null=True, blank=True, choices=[(o, o) for o in OUTCOMES]
    )
    job_id = models.UUIDField(null=True, blank=True, help_text="The job that stands for it.")

    objects: ClassVar[models.Manager[Outbox]] = models.Manager.from_queryset(OutboxQuerySet)()

    class Meta:
        verbose_name = verbose_name_plural = "outbox"
        indexes = (
            models.Index(
                name="django_jobs_outbox_pending",
                fields=("buffer", "tenant", "seq"),
                condition=Q(outcome=None),
            ),
            models.Index(
                name="django_jobs_outbox_aside",
                fields=("queue",),
                condition=Q(outcome="quarantined"),
            ),
            models.Index(
                name="django_jobs_outbox_held",
                fields=("batch", "tenant"),
                condition=Q(outcome=None)
                & (Q(claimed_until__isnull=False) | Q(next_try_at__isnull=False)),
            ),
            models.Index(
                name="django_jobs_outbox_key",
                fields=("name", "tenant", "idempotency_key"),
                condition=Q(outcome=None),
            ),
            models.Index(
                name="django_jobs_outbox_lane",
                fields=("name", "tenant", "lane", "seq"),
                condition=Q(lane__isnull=False) & (Q(outcome=None) | Q(outcome=QUARANTINED)),
            ),
            models.Index(
                name="django_jobs_outbox_retired",
                fields=("published_at",),
                condition=Q(published_at__isnull=False),
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.id}"
