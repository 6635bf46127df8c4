"""The watcher: one question for all lane jobs of a process, twice a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from django_jobs import conf
from django_jobs.lanes import advice
from django_jobs.lanes.advice import Claim

Look = Callable[[Collection[UUID]], Collection[UUID]]


class Watcher:
    """Keeps the lanes of running jobs, and has those looked at that something newer may replace.

    ``running`` gives the claims of the lane jobs whose bodies run now. ``look`` is told the ids of
    jobs that a signal calls superseded; it asks their rows, stops those whose row no longer carries
    their lease, and returns the others. Their lanes are claimed anew: the key belongs to another
    history. Each supersession is told once.
    """

    def __init__(self, running: Callable[[], Sequence[Claim]], look: Look) -> None:
        self._running, self._look = running, look
        self._told: set[tuple[UUID, int]] = set()
        self._stopped = threading.Event()

    def tick(self) -> float:
        """Beat once; after how many seconds to call again.

        What ``look`` raises goes through, and the same jobs are told again at the next tick.
        """
        pause = conf.current().lanes_poll
        claims = self._running()
        if not claims or self._stopped.is_set():
            self._told.clear()
            return pause
        usurped = advice.beat(claims)
        # A stop may have come while the answer was on its way.
        if self._stopped.is_set():
            return pause
        suspects = {c.job_id: c for c in claims if c.job_id in usurped}
        news = [id_ for id_, c in suspects.items() if (id_, c.token) not in self._told]
        if news:
            ours = self._look(news)
            advice.reclaim([suspects[id_] for id_ in ours])
            for id_ in ours:
                del suspects[id_]
        self._told = {(id_, claim.token) for id_, claim in suspects.items()}
        return pause

    def stop(self) -> None:
        """Neither beat nor tell anything from now on, whatever is on its way."""
        self._stopped.set()
