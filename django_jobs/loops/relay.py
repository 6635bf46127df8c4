"""The relay: committed outbox entries become jobs."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError

from django_jobs import conf
from django_jobs.errors import PublishError
from django_jobs.ids import new_token
from django_jobs.models import LaneKey, Outbox, picking, publishing
from django_jobs.models.waking import Hint, notify
from django_jobs.operations.announcing import announce

logger = logging.getLogger("django_jobs.relay")

BATCH = 500
CLAIM_LEASE = 30.0
"""Seconds for which a relay holds entries; another one takes them over after that."""

LONGEST_BACKOFF = 300.0


def tick(outbox_alias: str) -> int:
    """Publish the next entries of one outbox; how many were retired. 0: nothing is due."""
    token = new_token()
    rows = publishing.outbox(outbox_alias)
    lanes = picking.retrying(lambda: rows.claim(token, limit=BATCH, lease=CLAIM_LEASE))
    if not lanes:
        return 0
    jobs_alias = conf.current().database
    try:
        retired = _publish(outbox_alias, jobs_alias, token, lanes)
    except (OperationalError, InterfaceError) as error:
        if not _is_busy(error):
            raise  # The database's fault, not an entry's.
        retired = _publish_one_by_one(outbox_alias, jobs_alias, token, lanes)
    except (DatabaseError, PublishError, ValueError):
        retired = _publish_one_by_one(outbox_alias, jobs_alias, token, lanes)
    if retired:
        notify(jobs_alias, Hint.READY)
    return retired


def _is_busy(error: Exception) -> bool:
    """Whether somebody else held a lane or a row for too long: later is soon enough."""
    return isinstance(error, OperationalError) and picking.is_contention(error)


def _publish(
    outbox_alias: str, jobs_alias: str, token: UUID, lanes: Mapping[int, LaneKey | None]
) -> int:
    published = picking.retrying(
        lambda: publishing.publish_claimed(outbox_alias, jobs_alias, token, lanes)
    )
    announce(jobs_alias, published)
    return len(published.outcomes)


def _publish_one_by_one(
    outbox_alias: str, jobs_alias: str, token: UUID, lanes: Mapping[int, LaneKey | None]
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
            retired += _publish(outbox_alias, jobs_alias, token, {entry.seq: lanes[entry.seq]})
        except (OperationalError, InterfaceError) as error:
            if not _is_busy(error):
                raise
            stopped.add((entry.batch, entry.tenant))
            left.append(entry.seq)
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
