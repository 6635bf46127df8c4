"""A call that is staged alone: one statement, a function of the database."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs import enqueue, enqueue_many
from django_jobs.ids import new_id, new_token
from django_jobs.models import Outbox, publishing
from django_jobs.models.outbox import ENTRY_TYPES
from django_jobs.models.staging import callers_transaction
from django_jobs.states import LIVE, State
from tests.app.jobs import noop, record
from tests.rows.parties import make
from tests.rows.test_claiming import entry

postgres_only = pytest.mark.django_db(transaction=True, databases="__all__")


def full_entry() -> dict[str, Any]:
    """An entry in which no column has the value that it has by default."""
    half_past = timezone(timedelta(hours=5, minutes=30, seconds=28))
    return entry(
        id=new_id(),
        name="tests.full",
        queue="mail",
        priority=-7,
        tenant="acme",
        idempotency_key=f"O'Brien \\ {new_token()}",
        lane="lane",
        payload='{"text":"a \\"quoted\\" \\\\u0000 %s ü 🐘"}',
        run_at=datetime(2031, 1, 2, 3, 4, 5, 678901, half_past),
        max_attempts=9,
        timeout=1.5,
        on_conflict="error",
        traceparent="00-1-2-01",
        enqueued_by="someone",
        release="r1",
    )


@postgres_only
def test_an_entry_that_is_staged_alone_has_every_column_of_one_among_many() -> None:
    alone, among_many = full_entry(), full_entry()
    with transaction.atomic():
        assert callers_transaction("default").stage_one(alone, look=True) is None
        publishing.stage("default", [among_many], look=False)
    for given in (alone, among_many):
        stored = Outbox.objects.values(*(set(ENTRY_TYPES) - {"delay", "bypass"})).get(
            id=given["id"]
        )
        assert stored == {name: given[name] for name in stored}


@postgres_only
def test_a_delay_that_is_staged_alone_ends_as_late_as_it_says() -> None:
    with transaction.atomic():
        receipt = enqueue(noop.using(delay=3600), 1)
    stored = Outbox.objects.get(id=receipt.id)
    assert stored.run_at is not None and stored.run_at - stored.staged_at == timedelta(hours=1)


@pytest.mark.parametrize("state", list(State))
def test_a_call_in_a_transaction_is_deduped_by_live_jobs_and_by_no_others(
    jobs_alias: str, state: State
) -> None:
    """Each state by its own: the function, the constraint and the look-ups agree on all."""
    holder = make(state, name=record.name, idempotency_key="record:k")
    make(state, name=record.name, idempotency_key="record:k", tenant="another")
    with transaction.atomic(using=jobs_alias):
        receipt = enqueue(record, "k")
    if state in LIVE:
        assert (receipt.status, receipt.id) == ("deduped", holder.id)
    else:
        assert receipt.status == "staged"
    assert Outbox.objects.using(jobs_alias).count() == (state not in LIVE)


@postgres_only
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_old_snapshot_dedupes_onto_nothing(level: str) -> None:
    """The holder that it shows may have ended since; publishing decides."""
    make(State.RUNNING, name=record.name, idempotency_key="record:k")
    with transaction.atomic():
        with connections["default"].cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert enqueue(record, "k").status == "staged"


@postgres_only
def test_each_call_in_a_transaction_is_one_statement_that_everybody_can_see() -> None:
    """Also for one who begins to watch in the middle of the transaction."""
    with transaction.atomic():
        enqueue(record, "before")
        with CaptureQueriesContext(connections["default"]) as seen:
            enqueue(record, "a")
            enqueue(noop, 1)
        enqueue(record, "after")
    assert len(seen) == 2
    assert all("django_jobs_stage" in query["sql"] for query in seen)
    assert Outbox.objects.count() == 4


@postgres_only
def test_a_block_that_is_used_again_after_a_rollback_stages_on_the_session_of_that_time() -> None:
    block = transaction.atomic()
    with pytest.raises(ZeroDivisionError), block:
        enqueue(noop, 1)
        raise ZeroDivisionError
    connections["default"].close()
    with block:
        enqueue(noop, 2)
    assert Outbox.objects.get().payload == '{"number":2}'


@postgres_only
def test_many_calls_and_single_ones_keep_their_order() -> None:
    with transaction.atomic():
        receipts = [enqueue(noop, 1), *enqueue_many([noop.call(2), noop.call(3)]), enqueue(noop, 4)]
    stored = list(Outbox.objects.order_by("seq").values_list("id", flat=True))
    assert stored == [receipt.id for receipt in receipts]
    assert len(set(Outbox.objects.values_list("batch", flat=True))) == 1
