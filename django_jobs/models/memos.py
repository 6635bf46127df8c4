"""A run's steps, read and stored as ``Memo`` values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django_jobs.errors import UnknownValue
from django_jobs.models import picking
from django_jobs.models.run import Run
from django_jobs.steps.memo import Kind, Memo, Status

_TYPES: Mapping[str, str] = {
    "name": "text",
    "position_": "int",
    "kind": "text",
    "status": "text",
    "version": "text",
    "output": "text",
    "attempts": "int",
    "error_class": "text",
    "error": "text",
    "wait": "float8",
    "event": "text",
    "match": "text",
    "tenant": "text",
    "event_seq": "bigint",
    "child": "uuid",
}


def load(alias: str, run_id: UUID) -> list[Memo]:
    """Every step of a run. Raises ``UnknownValue`` for one that a newer release wrote."""
    return [_memo(row) for row in picking.run(alias, "steps", {"run": run_id})]


def remember(alias: str, run: Run, memos: Sequence[Memo], *, lock: bool) -> dict[str, float | None]:
    """Store ``memos`` if ``run`` still has its job; for each name the seconds until it wakes.

    ``lock`` keeps the job's row locked to the end of the transaction. Without it, the fence of
    the transaction must follow. An empty answer says that the run has lost its job.
    """
    values = [{name: _column(memo, name) for name in _TYPES} for memo in memos]
    source, parameters = picking.rows(alias, _TYPES, values)
    parameters |= {"job": run.id, "lease": run.lease}
    lock_text = "FOR NO KEY UPDATE" if lock else ""
    rows = picking.run(alias, "remember", parameters, called=source, lock=lock_text)
    return {row[0]: row[1] for row in rows}


def _column(memo: Memo, name: str) -> Any:
    value = getattr(memo, name.rstrip("_"))
    return value.value if isinstance(value, Kind | Status) else value


def _memo(row: tuple[Any, ...]) -> Memo:
    kind = _known(Kind, "kind", row[1])
    status = _known(Status, "status", row[2])
    child = None if row[14] is None else picking.to_uuid(row[14])
    return Memo(*(row[0], kind, status, *row[3:14], child))


def _known(kind: Any, column: str, value: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise UnknownValue("django_jobs_step", column, value, list(kind)) from None
