"""Dedupe: one live job per key, each caller its own tenant's row, whoever else publishes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.db.models import Q
from django.db.models.functions import Now

import django_jobs
from django_jobs import PER_CALL, enqueue, enqueue_many, get
from django_jobs.errors import DuplicateJob, PublishError
from django_jobs.loops import relay
from django_jobs.models import Job, Outbox, picking, publishing
from django_jobs.states import FINISHED, LIVE, State
from tests.app.jobs import fails, noop, record, tenanted
from tests.rows.parties import at_once, jobs, make, party, row, until_one_waits
from tests.rows.test_claiming import entry

postgres_only = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture(params=["direct", "staged"])
def how(request: pytest.FixtureRequest) -> str:
    """Outside a transaction, or in one and through the relay."""
    return str(request.param)


def run_enqueue(how: str, alias: str, *calls: Any) -> list[Any]:
    """What stands behind each call once it is published."""
    if how == "direct":
        return [get(django_jobs.enqueue_many([call])[0].id) for call in calls]
    results = []
    for call in calls:
        with transaction.atomic(using=alias):
            results.append(enqueue_many([call])[0])
        while relay.tick(alias):
            pass
    return [get(result.id) for result in results]


def holder(state: State, **columns: Any) -> Job:
    return make(state, **{"name": record.name, "idempotency_key": "record:k", **columns})


# --- the namespace -------------------------------------------------------------------------------


def test_the_same_key_of_two_jobs_is_two_jobs(jobs_alias: str, how: str) -> None:
    made = make(State.READY, name="another", idempotency_key="record:k")
    (asked,) = run_enqueue(how, jobs_alias, record.call("k"))
    assert asked.job_id != made.id
    assert not asked.deduped


def test_the_same_key_of_two_tenants_is_two_jobs_and_each_gets_its_own(
    jobs_alias: str, how: str
) -> None:
    calls = [tenanted.call(tenant, "k") for tenant in ("a", "b", "a", "b")]
    answers = run_enqueue(how, jobs_alias, *calls)
    assert [answer.tenant for answer in answers] == ["a", "b", "a", "b"]
    assert answers[0].job_id == answers[2].job_id != answers[1].job_id == answers[3].job_id
    assert {row(answer.job_id).tenant for answer in answers[::2]} == {"a"}


def test_jobs_without_tenant_share_one_namespace_apart_from_every_tenant(
    jobs_alias: str, how: str
) -> None:
    with_tenant = record.using(tenant="a")
    calls = [call for _ in range(2) for call in (record.call("k"), with_tenant.call("k"))]
    answers = run_enqueue(how, jobs_alias, *calls)
    assert [answer.tenant for answer in answers] == ["", "a", "", "a"]
    assert answers[0].job_id == answers[2].job_id != answers[1].job_id == answers[3].job_id
    assert jobs().count() == 2


@pytest.mark.parametrize("state", LIVE, ids=str)
def test_a_key_is_held_by_a_live_job(jobs_alias: str, how: str, state: State) -> None:
    live = holder(state)
    (answer,) = run_enqueue(how, jobs_alias, record.call("k"))
    assert answer.job_id == live.id
    assert jobs().count() == 1


def test_a_key_is_free_once_its_job_has_ended_and_the_new_run_is_another_one(
    jobs_alias: str, how: str
) -> None:
    old = [holder(state).id for state in FINISHED]
    (answer,) = run_enqueue(how, jobs_alias, record.call("k"))
    assert answer.job_id == answer.id
    assert answer.id not in old
    assert row(answer.id).run_id not in old
    assert jobs().count() == 5


def test_every_call_of_a_per_call_job_is_a_job(jobs_alias: str, how: str) -> None:
    assert noop.key is None, PER_CALL
    answers = run_enqueue(how, jobs_alias, *[noop.call(1)] * 3)
    assert len({answer.job_id for answer in answers}) == 3


def test_duplicates_inside_one_batch_become_one_job(jobs_alias: str) -> None:
    results = enqueue_many([record.call("a"), record.call("b"), record.call("a")])
    assert [result.status for result in results] == ["published", "published", "deduped"]
    assert results[0].id == results[2].id != results[1].id
    with transaction.atomic(using=jobs_alias):
        staged = enqueue_many([record.call("c"), record.call("d"), record.call("c")])
    assert [result.status for result in staged] == ["staged"] * 3
    assert relay.tick(jobs_alias) == 3
    standing = [get(result.id).job_id for result in staged]
    assert standing[0] == standing[2] == staged[0].id
    assert jobs().count() == 4


def test_the_constraint_the_insert_and_the_look_ups_name_the_same_columns_and_states() -> None:
    """S2: an insert that names them otherwise finds no index; a look-up finds a stranger."""
    (unique,) = (c for c in Job._meta.constraints if c.name == "django_jobs_job_live_key")
    fields = list(unique.fields)
    assert unique.condition == Q(state__in=[state.value for state in LIVE])
    states = "state IN (" + ", ".join(f"'{state.value}'" for state in LIVE) + ")"
    for postgres in (True, False):
        publish = picking._text("publish", postgres)
        target = re.search(r"ON CONFLICT \((.*?)\)\s+WHERE (.*?\)) DO NOTHING", publish, re.S)
        assert target is not None
        assert target[1].split(", ") == fields
        assert target[2] == states
        sorting = re.search(r"ORDER BY (.*), position", publish)
        assert sorting is not None and sorting[1].split(", ") == fields
        holders = picking._text("holders", postgres)
        freeing = picking._text("free_lane_keys", postgres)
        staging = Path(str(publishing.__file__)).with_name("outbox.py").read_text()
        for text in (holders, freeing, staging):
            assert re.findall(r"job\.(\w+) = called\.(?!id\b|lane\b)(\w+)", text) == [
                (name, name) for name in fields
            ]
            assert f"job.{states}" in text


# --- on_conflict="error" -------------------------------------------------------------------------


def test_a_strict_call_names_the_job_the_key_and_the_holder(jobs_alias: str) -> None:
    live = holder(State.RUNNING)
    strict = record.using(on_conflict="error")
    with pytest.raises(DuplicateJob) as direct:
        enqueue(strict, "k")
    with transaction.atomic(using=jobs_alias):
        with pytest.raises(DuplicateJob) as staged:
            enqueue(strict, "k")
        assert Outbox.objects.using(jobs_alias).count() == 0
        enqueue(record, "still usable")
    for refused in (direct.value, staged.value):
        assert (refused.name, refused.key) == (record.name, "record:k")
        assert refused.job_id == live.id
        assert str(live.id) in str(refused)
    assert jobs().count() == 1


def test_a_strict_call_is_no_duplicate_of_another_tenants_or_an_ended_job(
    jobs_alias: str, how: str
) -> None:
    holder(State.RUNNING, tenant="b")
    holder(State.DONE)
    (answer,) = run_enqueue(how, jobs_alias, record.using(on_conflict="error").call("k"))
    assert answer.job_id == answer.id


def test_a_strict_call_sees_what_its_own_transaction_staged(jobs_alias: str) -> None:
    with transaction.atomic(using=jobs_alias):
        first = enqueue(record, "k")
        with pytest.raises(DuplicateJob) as refused:
            enqueue(record.using(on_conflict="error"), "k")
        assert refused.value.job_id == first.id


def test_a_strict_batch_refuses_duplicates_of_its_own_and_writes_nothing(jobs_alias: str) -> None:
    """One policy for bulk and for single calls (ENQ-10)."""
    calls = [record.call("a"), record.using(on_conflict="error").call("a")]
    with pytest.raises(DuplicateJob):
        enqueue_many(calls)
    with transaction.atomic(using=jobs_alias), pytest.raises(DuplicateJob):
        enqueue_many(calls)
    assert jobs().count() == 0
    assert Outbox.objects.using(jobs_alias).count() == 0


def test_a_duplicate_that_comes_later_is_the_staged_strict_calls_outcome(jobs_alias: str) -> None:
    with transaction.atomic(using=jobs_alias):
        staged = enqueue(record.using(on_conflict="error"), "k")
    live = holder(State.READY)
    assert relay.tick(jobs_alias) == 1
    standing = get(staged.id)
    assert (standing.state, standing.job_id) == ("refused_duplicate", live.id)
    assert jobs().count() == 1


# --- what a published row holds ------------------------------------------------------------------


def test_a_future_time_makes_a_delayed_job_and_a_due_one_a_ready_job(
    jobs_alias: str, how: str
) -> None:
    moment = datetime.now(UTC)
    calls = [
        fails.using(delay=3600).call(),
        fails.using(delay=0).call(),
        fails.using(run_at=moment + timedelta(days=1)).call(),
        fails.using(run_at=moment - timedelta(days=1)).call(),
        fails.call(),
    ]
    answers = run_enqueue(how, jobs_alias, *calls)
    assert [a.state for a in answers] == ["delayed", "ready", "delayed", "ready", "ready"]
    due = [(row(answer.id).run_at - moment).total_seconds() / 3600 for answer in answers]
    assert [round(hours, 1) for hours in due] == [1, 0, 24, -24, 0]


def test_a_call_without_arguments_stores_json_and_the_default_queue(
    jobs_alias: str, how: str
) -> None:
    (answer,) = run_enqueue(how, jobs_alias, noop.call())
    stored = row(answer.id)
    assert stored.queue == "default"
    assert isinstance(stored.payload, list | dict)
    assert stored.attempt == 0 and stored.lease is None


def test_a_published_row_keeps_every_rule_of_the_table(jobs_alias: str) -> None:
    """A conflict on the key is left out; any other violation is an error on both engines [d33]."""
    with pytest.raises(IntegrityError), transaction.atomic(using=jobs_alias):
        publishing.insert_jobs(jobs_alias, [entry(name=None)])
    assert jobs().count() == 0


def test_a_repeated_publish_finds_its_own_rows_even_when_they_have_ended(jobs_alias: str) -> None:
    entries = [entry() for _ in range(3)]
    own = {one["id"]: one["id"] for one in entries}
    assert publishing.insert_jobs(jobs_alias, entries) == own
    jobs().filter(id=entries[0]["id"]).update(state="done", finished_at=Now())
    assert publishing.insert_jobs(jobs_alias, entries) == own
    assert jobs().count() == 3


# --- races ---------------------------------------------------------------------------------------


@postgres_only
def test_enqueues_of_one_key_at_the_same_moment_make_one_job() -> None:
    for number in range(5):
        answers = at_once(*[lambda number=number: enqueue(record, f"k{number}")] * 4)
        assert len({answer.id for answer in answers}) == 1
        assert sorted(a.status for a in answers) == ["deduped"] * 3 + ["published"]
    assert jobs().count() == 5


@postgres_only
def test_two_publishers_of_the_same_keys_in_opposite_orders_do_not_wait_in_a_ring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(picking, "retrying", lambda work, **_: work())
    keys = [f"k{number}" for number in range(300)]
    for number in range(5):
        up = [record.call(f"{number}-{key}") for key in keys]
        at_once(lambda up=up: enqueue_many(up), lambda up=up: enqueue_many(up[::-1]))
    assert jobs().count() == 5 * len(keys)


@postgres_only
def test_an_enqueue_waits_for_the_holders_settle_and_is_then_a_job_of_its_own() -> None:
    """W6: refused by a row that ends before the look-up; the insert is tried again."""
    live = holder(State.RUNNING)
    with party() as body:
        block = transaction.atomic()
        body.do(block.__enter__)
        body.do(lambda: jobs().filter(id=live.id).update(state="done", finished_at=Now()))
        with party() as caller:
            asking = caller.start(enqueue, record, "k")
            until_one_waits()
            body.do(block.__exit__, None, None, None)
            answer = asking.result(30)
    assert answer.status == "published"
    assert answer.id != live.id


def test_a_holder_that_ends_between_refusal_and_look_up_costs_another_try(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = holder(State.RUNNING)
    look = publishing.holders

    def too_late(alias: str, entries: Any) -> Any:
        jobs().filter(id=live.id).update(state="done", finished_at=Now())
        return look(alias, entries)

    monkeypatch.setattr(publishing, "holders", too_late)
    assert enqueue(record, "k").status == "published"
    assert jobs().count() == 2


def test_a_row_refused_over_and_over_names_the_constraint_and_the_remedy(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder(State.RUNNING)
    monkeypatch.setattr(publishing, "holders", lambda alias, entries: {})
    with pytest.raises(PublishError, match=r"django_jobs_job_live_key.*migrate django_jobs"):
        enqueue(record, "k")
    assert jobs().count() == 1


def test_a_staging_call_whose_holders_come_and_go_is_staged_and_never_lost(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder(State.RUNNING)
    monkeypatch.setattr(publishing, "holders", lambda alias, entries: {})
    with transaction.atomic(using=jobs_alias):
        staged = enqueue_many([record.call("k"), noop.call()])
    assert [receipt.status for receipt in staged] == ["staged", "staged"]


# --- isolation levels ----------------------------------------------------------------------------


@contextmanager
def isolated(level: str) -> Iterator[None]:
    """This thread's connection as a project with ``OPTIONS['isolation_level']`` has it."""
    connection = connections["default"]
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute(f"SET default_transaction_isolation = '{level}'")
    try:
        yield
    finally:
        connection.close()


LEVELS = pytest.mark.parametrize("level", ["repeatable read", "serializable"])


@LEVELS
@postgres_only
def test_a_publish_sees_what_the_lock_it_waited_for_has_committed(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Direct publish runs on the caller's own connection, whatever its isolation level [d3]."""
    for calls in ([record.call("k")], [record.call("k"), record.call("l")]):
        if len(calls) > 1:  # A transaction, which needs no second try at READ COMMITTED.
            monkeypatch.setattr(picking, "retrying", lambda work, **_: work())
        live = holder(State.RUNNING)
        with party() as body, party() as caller:
            setting = isolated(level)
            caller.do(setting.__enter__)
            block = transaction.atomic()
            body.do(block.__enter__)
            body.do(lambda live=live: jobs().filter(id=live.id).update(state="done"))
            asking = caller.start(enqueue_many, calls)
            until_one_waits()
            body.do(block.__exit__, None, None, None)
            assert {answer.status for answer in asking.result(30)} == {"published"}
            caller.do(setting.__exit__, None, None, None)
        jobs().all().delete()


@LEVELS
@postgres_only
def test_a_publish_is_deduplicated_onto_the_holder_whose_commit_it_waited_for(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a snapshot older than that commit PostgreSQL refuses the statement instead [d3]."""
    monkeypatch.setattr(picking, "retrying", lambda work, **_: work())
    with party() as first, party() as second:
        block, setting = transaction.atomic(), isolated(level)
        second.do(setting.__enter__)
        first.do(block.__enter__)
        (key,) = first.do(lambda: publishing.insert_jobs("default", [entry(name=record.name)]))
        jobs_key = {"idempotency_key": "record:k"}
        first.do(lambda: jobs().filter(id=key).update(**jobs_key))
        asking = second.start(enqueue_many, [record.call("k"), record.call("l")])
        until_one_waits()
        first.do(block.__exit__, None, None, None)
        try:
            waited, free = asking.result(30)
        finally:
            second.do(setting.__exit__, None, None, None)
    assert (waited.status, waited.job_id, free.status) == ("deduped", key, "published")


@LEVELS
@postgres_only
def test_publishers_at_any_isolation_level_make_one_job_for_each_key(level: str) -> None:
    keys = [f"k{number}" for number in range(40)]

    def publish() -> list[Any]:
        with isolated(level):
            one_by_one = [enqueue(record, key) for key in keys[:10]]
            return one_by_one + enqueue_many(record.call(key) for key in keys)

    at_once(publish, publish, publish)
    assert jobs().count() == len(keys)


@LEVELS
@postgres_only
def test_a_relay_at_any_isolation_level_publishes(level: str) -> None:
    with transaction.atomic():
        staged = enqueue_many(record.call(str(n)) for n in range(5))
    with isolated(level):
        assert relay.tick("default") == 5
    assert {get(one.id).state for one in staged} == {"ready"}


@LEVELS
@postgres_only
def test_staging_on_an_old_snapshot_does_not_stand_for_a_holder_that_has_ended(
    level: str,
) -> None:
    live = holder(State.RUNNING)
    with isolated(level):
        with transaction.atomic():
            assert jobs().filter(id=live.id).exists()  # The snapshot is taken here.
            with party() as worker:
                worker.do(lambda: jobs().filter(id=live.id).update(state="done"))
            staged = enqueue(record, "k")
            assert staged.status == "staged"
        assert relay.tick("default") == 1
    assert get(staged.id).job_id == staged.id


@postgres_only
def test_staging_at_the_usual_level_answers_with_the_live_holder() -> None:
    live = holder(State.RUNNING)
    with transaction.atomic():
        answer = enqueue(record, "k")
    assert (answer.status, answer.id) == ("deduped", live.id)
    assert Outbox.objects.using("default").count() == 0
