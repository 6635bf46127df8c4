"""The ranges of a pass: fixed when it starts, so that new rows do not chase it."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.db.models import Field, IntegerField, UUIDField

from django_jobs.backfills import Keyset
from django_jobs.errors import DeclarationError
from django_jobs.models import picking


def split(keyset: Keyset, first: str, last: str, parts: int) -> list[tuple[str | None, str]]:
    """``parts`` ranges (after, upto) from the cursor ``first`` to ``last``, equally wide.

    Fewer where there are not as many keys. Raises ``DeclarationError`` unless the key is one
    integer or UUID column.
    """
    if parts == 1 or first == last:
        return [(None, last)]
    key = keyset.keys[0]
    if len(keyset.keys) > 1 or not isinstance(key.field, IntegerField | UUIDField):
        raise DeclarationError(
            f"shards={parts} needs one integer or UUID column to cut; the order of "
            f"{keyset.model._meta.label} is {', '.join(k.order for k in keyset.keys)}. "
            "Leave shards out."
        )
    low, high = _number(keyset.values(first)[0]), _number(keyset.values(last)[0])
    inner = (low + (high - low) * n // parts for n in range(1, parts))
    cuts = [cut for cut in dict.fromkeys(inner) if cut not in (low, high)]
    ends = [*(_cursor(key.field, cut) for cut in cuts), last]
    return list(zip([None, *ends], ends, strict=False))


def _number(value: Any) -> int:
    return value.int if isinstance(value, uuid.UUID) else int(value)


def _cursor(field: Field[Any, Any], number: int) -> str:
    text = str(uuid.UUID(int=number)) if isinstance(field, UUIDField) else str(number)
    return json.dumps([text])


def expected_rows(keyset: Keyset) -> int | None:
    """About how many rows there are, as the planner thinks; a count of a large table takes long."""
    if not picking.is_postgres(keyset.alias):
        return None
    rows = keyset.rows.all()
    rows.query.select_for_update = False
    plan = json.loads(rows.explain(format="json"))
    return int(plan[0]["Plan"]["Plan Rows"])
