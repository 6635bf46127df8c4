"""The relay: committed outbox entries become jobs."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError

from django_jobs import conf
from django_jobs.errors import PublishError
from django_jobs.ids import new_token
from django_jobs.loops import overflow
from django_jobs.models import Outbox, admission, picking, publishing
from django_jobs.models.waking import Hint, notify

logger = logging.getLogger("django_jobs.relay")

BATCH = 500
CLAIM_LEASE = 30.0
"""Seconds for which a relay holds entries; another one takes them over after that."""

LONGEST_BACKOFF = 300.0


def tick(outbox_alias: str) -> int:
    """Publish the next entries of one outbox; how many were retired or got room.

    0: nothing is due, or nothing has room.
    """
    token = new_token()
    admitted = admission.of(outbox_alias).admit(token, limit=BATCH, lease=CLAIM_LEASE)
    overflow.follow()
    jobs_alias = conf.current().database
    retired = _publish(outbox_alias, jobs_alias, token, admitted) if admitted.lanes else 0
    if retired or admitted.unblocked:
        notify(jobs_alias, Hint.READY)
    return retired + admitted.unblocked


def _publish(outbox_alias: str, jobs_alias: str, token: UUID, admitted: admission.Admitted) -> int:
    try:
        return len(
            picking.retrying(
                lambda: publishing.publish_claimed(
                    outbox_alias, jobs_alias, token, admitted.lanes, blocked=admitted.blocked
                )
            )
        )
    except (OperationalError, InterfaceError):
        raise  # The database's fault, not an entry's; the claim lapses if it cannot be released.
    except (DatabaseError, PublishError, ValueError):
        return _publish_one_by_one(outbox_alias, jobs_alias, token, admitted.blocked)


def _publish_one_by_one(
    outbox_alias: str, jobs_alias: str, token: UUID, blocked: Collection[int]
) -> int:
    """Find the entry that fails. It stops its own order group; the others go on."""
    rows = publishing.outbox(outbox_alias)
    stopped: set[tuple[UUID, str]] = set()
    retired, left = 0, []
    ours = rows.filter(claimed_by=token, outcome=None).order_by("seq")
    for entry in list(ours):
        if (entry.batch, entry.tenant) in stopped:
            left.append(entry.seq)
            continue
        try:
            retired += len(
                publishing.publish_claimed(
                    outbox_alias, jobs_alias, token, [entry.seq], blocked=blocked
                )
            )
        except (OperationalError, InterfaceError):
            raise
        except (DatabaseError, PublishError, ValueError) as error:
            stopped.add((entry.batch, entry.tenant))
            _note_failure(outbox_alias, token, entry, error)
    rows.release(token, left)
    return retired


def _note_failure(alias: str, token: UUID, entry: Outbox, error: Exception) -> None:
    limit = conf.current().publish_attempts
    delay = min(LONGEST_BACKOFF, 2.0**entry.attempts) * random.uniform(0.5, 1.0)
    text = f"{type(error).__name__}: {error}".replace("\x00", "")[:2000]
    noted = publishing.outbox(alias).fail(token, entry.seq, text, delay=delay, limit=limit)
    if noted:
        logger.warning("publishing %s %s failed: %s", entry.name, entry.id, text)
