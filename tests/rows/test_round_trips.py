"""What comes back from the database is what was stored, also where no type is declared."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from django_jobs import enqueue, get
from django_jobs.loops import relay
from django_jobs.models import Job
from django_jobs.testing import drain
from tests.app.jobs import anything

VALUES = [
    *(1e15, 1e16, -1e16, 1.5e300, 1.7976931348623157e308, 123456789012345680.0, 5e-324, 1e-7, -0.0),
    *(0, 2**53 + 1, 2**63 - 1, -(2**63), True, None, "", "1e16", ":1e16", 'a"e1\\', "\u2028😀"),
    {"deep": [{"1e16": [1e16, 1, "[-2e17]"]}], "e1": -2e17},
    [[1e16], [], {}],
]


def kinds(value: Any) -> Any:
    """The types within a value, so that 1e16 and 10**16, which are equal, can be told apart."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    return [kinds(item) for item in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("staged", [False, True])
def test_untyped_values_come_back_equal_and_of_the_same_type(jobs_alias: str, staged: bool) -> None:
    if staged:
        with transaction.atomic(using=jobs_alias):
            made = enqueue(anything, VALUES)
        assert relay.tick(jobs_alias) == 1
    else:
        made = enqueue(anything, VALUES)
    assert Job.objects.get(id=made.id).payload == {"value": VALUES}
    drain()
    shown = get(made.id)
    assert shown.state == "done", shown.reason
    for back in (shown.result, shown.progress):
        assert back == VALUES
        assert kinds(back) == kinds(VALUES)
