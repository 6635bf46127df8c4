"""The janitor: history past its retention is deleted, quarantined entries get another chance."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db.models.functions import Now

from django_jobs import conf
from django_jobs.models import Event, Job, admission, picking, publishing
from django_jobs.models.decision import decisions
from django_jobs.models.outbox import PUBLISHED
from django_jobs.operations import outbox_aliases
from django_jobs.states import State

logger = logging.getLogger("django_jobs.janitor")

BATCH = 1000


def tick() -> int:
    """Delete one batch of each kind; how many rows. More than 0 means: there may be more."""
    settings = conf.current()
    if revived := admission.revive():
        logger.info("%d quarantined outbox entries get one more chance", revived)
    deleted = 0
    for state, age in settings.retention.items():
        deleted += Job.objects.all().prune(State(state), age=age, limit=BATCH)
    gone: int = Event.objects.all().prune(BATCH)
    deleted += gone
    deleted += decisions(settings.database).prune(settings.schedule_retention, BATCH)
    for alias in outbox_aliases():
        deleted += _prune_outbox(alias)
    return deleted


def _prune_outbox(alias: str) -> int:
    """Published entries go after ``OUTBOX_RETENTION``: their jobs answer for their ids.

    Receipts, entries that stand for another row, stay as long as finished jobs do.
    """
    settings = conf.current()
    rows = publishing.outbox(alias)
    longest = max(settings.retention.values())
    published = rows.filter(
        outcome=PUBLISHED, published_at__lt=Now() - timedelta(seconds=settings.outbox_retention)
    )
    receipts = rows.exclude(outcome=PUBLISHED).filter(
        published_at__lt=Now() - timedelta(seconds=longest)
    )
    deleted = 0
    for old in (published, receipts):
        with picking.own_transaction(alias):
            seqs = list(
                old.order_by("published_at")
                .select_for_update(skip_locked=True)
                .values_list("seq", flat=True)[:BATCH]
            )
            deleted += rows.filter(seq__in=seqs).delete()[0]
    return deleted
