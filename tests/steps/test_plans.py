"""The statements of steps and events read what they need, however many runs wait."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import connections
from django.db.models.functions import Now

from django_jobs import emit
from django_jobs.ids import new_token
from django_jobs.models import Event, Job, Run, memos, picking
from django_jobs.states import State
from django_jobs.steps.memo import Kind, Memo, Status
from tests.rows.parties import make, run_of

WAITING = 5_000


@pytest.fixture
def crowd(transactional_db: None) -> Run:
    """Thousands of runs that wait for one kind of event, with finished steps; and a running one."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_jobs_job (id, run_id, name, idempotency_key, payload, state,"
            " run_at) SELECT gen_random_uuid(), gen_random_uuid(), 'x', n::text, '{}',"
            " 'suspended', statement_timestamp() + interval '1 day'"
            " FROM generate_series(1, %s) AS n",
            [WAITING],
        )
        for name, status, event in (
            ("a", "done", None),
            ("b", "done", None),
            ("w", "waiting", "go"),
        ):
            cursor.execute(
                "INSERT INTO django_jobs_step (run_id, name, job_id, kind, status, event, match)"
                " SELECT run_id, %s, id, 'run', %s, %s, idempotency_key FROM django_jobs_job",
                [name, status, event],
            )
        run = run_of(make(State.RUNNING, run_id=new_token()))
        cursor.execute("ANALYZE django_jobs_job, django_jobs_step, django_jobs_event")
    return run


def plan(verb: str, parameters: dict[str, Any], **parts: str) -> str:
    text = picking._text(verb, True)
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    with connections["default"].cursor() as cursor:
        cursor.execute(f"EXPLAIN {text}", parameters)
        return "\n".join(row[0] for row in cursor.fetchall())


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_no_statement_of_steps_reads_a_whole_table(crowd: Run) -> None:
    emit("go", match="7")
    seqs = {"seqs": list(Event.objects.values_list("seq", flat=True))}
    memo = Memo("a", Kind.RUN, Status.DONE)
    values = [{name: memos._column(memo, name) for name in memos._TYPES}]
    source, parameters = picking.rows("default", memos._TYPES, values)
    parameters |= {"job": crowd.id, "lease": crowd.lease}
    plans = {
        "waits": plan("waits", {}),
        "fresh_events": plan("fresh_events", {"limit": 1000}),
        "answer": plan("answer", seqs),
        "answer_parents": plan("answer_parents", {"limit": 1000}),
        "wake_answered": plan("wake_answered", {"limit": 1000}),
        "steps": plan("steps", {"run": crowd.run_id}),
        "remember": plan("remember", parameters, called=source, lock="FOR NO KEY UPDATE"),
    }
    for verb, text in plans.items():
        for table in ("django_jobs_step", "django_jobs_job"):
            assert f"Seq Scan on {table}" not in text, f"{verb}:\n{text}"


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_one_event_wakes_the_one_run_of_thousands_that_it_is_for(crowd: Run) -> None:
    emit("go", match="7")
    assert Event.objects.all().match(1000) == (1, 1)
    assert len(Job.objects.all().wake_answered(limit=1000)) == 1
    woken: UUID = Job.objects.get(state="ready").id
    assert Job.objects.get(id=woken).idempotency_key == "7"
    assert Job.objects.filter(id=woken, run_at__lte=Now()).exists()
