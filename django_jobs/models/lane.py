"""Supersede lanes: the head row, which outlives the lane's jobs, and the lock that makes order.

Of all jobs of one lane, the one published last wins. "Last" is the greatest token, drawn from one
database sequence by a publisher that holds the lane's stripe, so it follows the order of commits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from django.db import connections, models

from django_jobs.models import picking

STRIPES = 256
"""A lock for each lane would fill the server's lock table; sharing one only costs waiting."""

STRIPE_CLASS = picking.ADVISORY_CLASS + 1


class LaneKey(NamedTuple):
    """Which lane: lanes of two jobs or of two tenants never meet."""

    name: str
    tenant: str
    lane: str

    @property
    def stripe(self) -> int:
        """The number of the lock that publishers of this lane share, from 0 to 255."""
        text = "\x00".join(self).encode()
        return hashlib.blake2b(text, digest_size=1).digest()[0] % STRIPES


def lock_and_draw(
    alias: str, keys: Iterable[LaneKey], *, patience: float | None = None
) -> list[int]:
    """Lock the stripes of these lanes until the transaction ends; one new token for each.

    The first statement of a publishing transaction: whatever is read after it was committed by
    those who held the stripes before. Tokens ascend in the order of ``keys``. With ``patience``
    (seconds) no lock of the transaction is waited for longer; on SQLite, where there is one lock
    for all, the connection's own time-out holds.
    """
    wanted = list(keys)
    if not wanted:
        return []
    if not picking.is_postgres(alias):
        ((last,),) = picking.run(alias, "draw_tokens", {"draws": len(wanted)})
        return list(range(last - len(wanted) + 1, last + 1))
    # By the integer: ordered by the lanes' texts, two that share a stripe would deadlock.
    stripes = sorted({key.stripe for key in wanted})
    limit = None if patience is None else f"{int(patience * 1000)}ms"
    parameters = {"class": STRIPE_CLASS, "stripes": stripes, "draws": len(wanted), "limit": limit}
    return sorted(row[0] for row in picking.run(alias, "draw_tokens", parameters))


def try_stripe(alias: str, key: LaneKey) -> bool:
    """Take the stripe of ``key`` until the transaction ends, unless somebody holds it now.

    On SQLite the write transaction itself is the lock.
    """
    if not picking.is_postgres(alias):
        return True
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", (STRIPE_CLASS, key.stripe))
        return bool(cursor.fetchone()[0])


class Lane(models.Model):
    """What was published last in one (name, tenant, lane)."""

    name = models.CharField(max_length=200)
    tenant = models.CharField(max_length=200, db_default="", blank=True)
    lane = models.CharField(max_length=512)
    last_token = models.BigIntegerField(db_default=0)
    last_job = models.UUIDField(null=True, blank=True)
    last_done_at = models.DateTimeField(null=True, blank=True)
    supersessions = models.IntegerField(
        db_default=0, help_text="Runs that were superseded since one of the lane ended done."
    )

    class Meta:
        constraints = (
            models.UniqueConstraint(name="django_jobs_lane_key", fields=("name", "tenant", "lane")),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.tenant} {self.lane}"


class Counter(models.Model):
    """Where SQLite, which has no sequences, counts lane tokens. One row, ``"lane"``."""

    name = models.CharField(max_length=50, primary_key=True)
    value = models.BigIntegerField(db_default=0)

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"
