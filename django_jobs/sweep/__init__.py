"""The work on a pass of a backfill, in the body of its job: page after page, until none is left."""

from django_jobs import backfills
from django_jobs.sweep.working import work

__all__ = ["work"]

backfills.bind(work)
