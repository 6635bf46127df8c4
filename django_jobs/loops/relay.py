"""The relay: committed outbox entries become jobs."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Mapping
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from django_jobs import conf
from django_jobs.errors import PublishError
from django_jobs.failures import gist
from django_jobs.ids import new_token
from django_jobs.loops import overflow
from django_jobs.models import LaneKey, Outbox, admission, picking, publishing
from django_jobs.models.admission import Admitted
from django_jobs.models.waking import Hint, notify
from django_jobs.operations.announcing import announce

logger = logging.getLogger("django_jobs.relay")

BATCH = 500
CLAIM_LEASE = 30.0
"""Seconds for which a relay holds entries; another one takes them over after that."""

RELEASE_PATIENCE = 1.0
"""Seconds to wait for the locks of what is handed back."""

LONGEST_BACKOFF = 300.0

Lanes = Mapping[int, LaneKey | None]
"""The entries of a claim, by ``seq``, each with its lane."""


_unreleased: dict[str, tuple[UUID, list[int], float]] = {}
"""By outbox: a claim that could not be handed back, and when it lapses by itself."""


def tick(outbox_alias: str) -> int:
    """Publish the next entries of one outbox; how many were retired or got room.

    0: nothing is due, or nothing has room.
    """
    if outbox_alias in _unreleased:
        _release(outbox_alias, *_unreleased.pop(outbox_alias))
    token, lapses = new_token(), time.monotonic() + CLAIM_LEASE
    admitted = admission.of(outbox_alias).admit(token, limit=BATCH, lease=CLAIM_LEASE)
    overflow.follow()
    retired = 0
    if admitted.lanes:
        try:
            retired = _publish(outbox_alias, token, admitted)
        except (DatabaseError, InterfaceError):
            _release(outbox_alias, token, list(admitted.lanes), lapses)
            raise
    if retired or admitted.unblocked:
        notify(conf.current().database, Hint.READY)
    return retired + admitted.unblocked


def _publish(outbox_alias: str, token: UUID, admitted: Admitted) -> int:
    lanes, blocked = admitted.lanes, admitted.blocked
    try:
        return _publish_together(outbox_alias, token, lanes, blocked)
    except (DatabaseError, InterfaceError, PublishError, ValueError) as error:
        if picking.is_outage(error) and not _is_busy(error):
            raise
    return _publish_one_by_one(outbox_alias, token, lanes, blocked)


def _publish_together(
    outbox_alias: str, token: UUID, lanes: Lanes, blocked: Collection[int]
) -> int:
    jobs_alias = conf.current().database
    published = picking.retrying(
        lambda: publishing.publish_claimed(outbox_alias, jobs_alias, token, lanes, blocked=blocked),
        alias=outbox_alias,
    )
    announce(jobs_alias, published)
    return len(published.outcomes)


def _is_busy(error: Exception) -> bool:
    """Whether somebody else held a lane or a row for too long: later is soon enough."""
    return isinstance(error, OperationalError) and picking.is_contention(error)


def _release(alias: str, token: UUID, seqs: list[int], lapses: float) -> None:
    """Hand a claim back, so that nobody waits for its lease; what is published stays so.

    When the database does not answer, the next tick tries again, until the claim has lapsed.
    """
    connections[alias].close_if_unusable_or_obsolete()
    try:
        # A session of ours that the server has not missed yet may still hold the rows.
        with picking.impatient_transaction(alias, RELEASE_PATIENCE):
            publishing.outbox(alias).release(token, seqs)
    except (DatabaseError, InterfaceError) as error:
        logger.debug("releasing %d entries of %r: %s", len(seqs), alias, error)
        if time.monotonic() < lapses:
            _unreleased[alias] = token, seqs, lapses


def _publish_one_by_one(
    outbox_alias: str, token: UUID, lanes: Lanes, blocked: Collection[int]
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
            alone = {entry.seq: lanes[entry.seq]}
            retired += _publish_together(outbox_alias, token, alone, blocked)
        except (DatabaseError, InterfaceError, PublishError, ValueError) as error:
            stopped.add((entry.batch, entry.tenant))
            if _is_busy(error):
                left.append(entry.seq)
            elif picking.is_outage(error):
                raise
            else:
                _note_failure(outbox_alias, token, entry, error)
    rows.release(token, left)
    return retired


def _note_failure(alias: str, token: UUID, entry: Outbox, error: Exception) -> None:
    limit = conf.current().publish_attempts
    delay = min(LONGEST_BACKOFF, 2.0**entry.attempts) * random.uniform(0.5, 1.0)
    text = gist(error)
    noted = publishing.outbox(alias).fail(token, entry.seq, text, delay=delay, limit=limit)
    if noted:
        logger.warning("publishing %s %s failed: %s", entry.name, entry.id, text)
