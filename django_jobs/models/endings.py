"""How jobs have ended, asked for by ids that enqueue returned."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from django_jobs import conf
from django_jobs.models import publishing
from django_jobs.models.job import Job
from django_jobs.states import FINISHED

Ending = tuple[UUID | None, str | None]
"""The job that stands for an id (``None``: not published yet), and its end as JSON, if it has."""


def of(ids: Collection[UUID]) -> dict[UUID, Ending]:
    """For each id its ``Ending``. An id that nothing stands for any more was ``pruned``."""
    found = _of_jobs(ids)
    for entry in _entries([id_ for id_ in ids if id_ not in found]):
        if entry.outcome is None:
            found[entry.id] = (None, None)
        elif entry.job_id in (None, entry.id):
            found.setdefault(entry.id, (entry.id, _json(entry.id, entry.outcome)))
        else:
            found[entry.id] = _of_jobs([entry.job_id]).get(
                entry.job_id, (entry.job_id, _json(entry.job_id, "pruned"))
            )
    return {id_: found.get(id_, (id_, _json(id_, "pruned"))) for id_ in ids}


def _of_jobs(ids: Collection[UUID]) -> dict[UUID, Ending]:
    rows = Job.objects.filter(id__in=list(ids)).values_list("id", "state", "result", "reason")
    ended = {state.value for state in FINISHED}
    return {
        id_: (id_, _json(id_, state, result, reason) if state in ended else None)
        for id_, state, result, reason in rows
    }


def _entries(ids: Collection[UUID]) -> Iterable[Any]:
    settings = conf.current()
    for alias in dict.fromkeys((*settings.outbox_databases, settings.database)) if ids else ():
        yield from publishing.outbox(alias).filter(id__in=list(ids))


def _json(id_: UUID, state: str, result: Any = None, reason: str = "") -> str:
    return json.dumps({"id": str(id_), "state": state, "result": result, "reason": reason})
