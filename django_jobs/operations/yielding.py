"""The start of a run whose lane spares what runs: older runs end now."""

from __future__ import annotations

from django_jobs import conf
from django_jobs.models import Job, Run, picking, superseding
from django_jobs.models.lane import LaneKey, try_stripe
from django_jobs.models.publishing import Published
from django_jobs.operations.announcing import announce


def supersede_running(run: Run) -> bool:
    """End what is older in the lane of ``run`` and still runs; ``False``: come again soon.

    A publisher may hold the lane at this moment, and then this run may not be the newest.
    """
    assert run.lane is not None
    alias = conf.current().database
    key = LaneKey(run.name, run.tenant, run.lane)
    with picking.own_transaction(alias):
        if not try_stripe(alias, key) or not Job.objects.all().still_held([run]):
            return False
        ended = superseding.supersede(alias, {run.id: run.name}, now=True)
    announce(alias, Published(superseded=ended))
    return True
