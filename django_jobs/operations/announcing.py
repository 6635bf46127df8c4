"""What is told once a publish has committed: best effort, since the rows say it all."""

from __future__ import annotations

import logging

from django_jobs.lanes import advice
from django_jobs.lanes.advice import Claim
from django_jobs.models import superseding
from django_jobs.models.publishing import Published
from django_jobs.models.waking import Hint, notify
from django_jobs.signals import job_superseded

logger = logging.getLogger("django_jobs.lanes")

STARVING = 5
"""Runs of a lane superseded in a row, with none done between, that are worth a warning."""


def announce(jobs_alias: str, published: Published) -> None:
    """Tell workers and subscribers of the lanes in which something was published. After commit."""
    if any(one.ran for one in published.superseded):
        notify(jobs_alias, Hint.STOP)
    for one in published.superseded:
        job_superseded.send_robust(
            sender=one.key.name, job_id=one.job_id, superseded_by=one.by, ran=one.ran
        )
    advice.claim_many(
        [
            Claim(*one.key, one.job_id, one.token, one.delay)
            for one in published.announced
            if not superseding.spares(one.key.name)  # Its claim is made when it starts.
        ]
    )
    for name, runs in published.longest.items():
        if runs and runs % STARVING == 0:
            logger.warning(
                "job %s: %d runs of one lane were superseded in a row and none ended done; "
                'declare supersede_running="on_start" to let a run end first',
                name,
                runs,
            )
