"""One look at what there is to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django_jobs.models import picking, publishing


@dataclass(frozen=True, slots=True)
class Peek:
    """What an idle worker finds. ``next_due``: seconds until a delayed job is due, if one is."""

    staged: bool
    due: bool
    ready: bool
    running: bool
    suspects: bool
    next_due: float | None

    @property
    def nothing_left(self) -> bool:
        """Nothing to publish, to wake, to run or to wait for; jobs of a later time do not count."""
        return not (self.staged or self.due or self.ready or self.running)


def peek(jobs_alias: str, outbox_aliases: Sequence[str], queues: Sequence[str]) -> Peek:
    """Look once; one statement where jobs and outbox share a database."""
    row = picking.run(jobs_alias, "peek", {"queues": picking.texts(jobs_alias, queues)})[0]
    others = (alias for alias in outbox_aliases if alias != jobs_alias)
    staged = bool(row[0]) or any(publishing.outbox(a).pending().exists() for a in others)
    return Peek(staged, bool(row[1]), bool(row[2]), bool(row[3]), bool(row[4]), row[5])
