"""The outbox and the relay: from a committed entry to one job, in order, whoever else relays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models.functions import Now

import django_jobs
from django_jobs import enqueue, enqueue_many, get
from django_jobs.errors import (
    DuplicateJob,
    EnqueueError,
    JobNotFound,
    NotCancellable,
    NotYourJob,
    OtherDatabaseOpen,
)
from django_jobs.ids import new_token
from django_jobs.loops import relay
from django_jobs.models import Job, Outbox, OutboxQuerySet, publishing, waking
from django_jobs.models.outbox import DEDUPED, PUBLISHED, QUARANTINED
from django_jobs.operations import standing
from django_jobs.states import State
from tests.app.jobs import fails, noop, record, tenanted
from tests.app.models import Account
from tests.rows.parties import at_once, jobs, make, party, row, until_one_waits

postgres_only = pytest.mark.django_db(transaction=True, databases="__all__")
BROKEN = "no JSON"
"""A payload that the job table refuses."""


def outbox(alias: str = "default") -> OutboxQuerySet:
    return publishing.outbox(alias)


def stage(alias: str, *calls: Any) -> list[Any]:
    """``calls`` staged in one transaction."""
    with transaction.atomic(using=alias):
        return enqueue_many(calls)


def spoil(alias: str, entry_id: Any) -> None:
    assert outbox(alias).filter(id=entry_id).update(payload=BROKEN)


def pass_time(alias: str) -> None:
    """Every claim of the outbox runs out and every waiting entry is due."""
    past = Now() - timedelta(milliseconds=5)
    outbox(alias).exclude(claimed_until=None).update(claimed_until=past)
    outbox(alias).exclude(next_try_at=None).update(next_try_at=past)


def entry(alias: str, entry_id: Any) -> Outbox:
    return outbox(alias).get(id=entry_id)


# --- from commit to job --------------------------------------------------------------------------


def test_what_rolled_back_left_nothing_and_nothing_is_seen_before_the_commit(
    jobs_alias: str,
) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=jobs_alias):
        enqueue(record, "k")
        raise ZeroDivisionError
    assert outbox(jobs_alias).count() == 0
    with transaction.atomic(using=jobs_alias):
        enqueue(record, "k")
        with party() as other:
            assert other.do(lambda: outbox(jobs_alias).count()) == 0
            if jobs_alias == "default":  # On SQLite the relay waits for the open transaction.
                assert other.do(relay.tick, jobs_alias) == 0
    assert relay.tick(jobs_alias) == 1
    assert relay.tick(jobs_alias) == 0
    assert not outbox(jobs_alias).pending().exists()


def test_the_staged_id_is_the_jobs_id_for_ever(jobs_alias: str) -> None:
    (staged,) = stage(jobs_alias, record.call("k"))
    assert (staged.status, staged.job_id, staged.deduped) == ("staged", None, None)
    assert get(staged.id).state == "staged"
    relay.tick(jobs_alias)
    assert get(staged.id).job_id == staged.id
    assert row(staged.id).run_id == staged.id


def test_savepoints_decide_about_what_was_enqueued_in_them(jobs_alias: str) -> None:
    """ENQ-03: exactly what its savepoint kept exists, and the lost one's key is free."""
    with transaction.atomic(using=jobs_alias):
        kept = [enqueue(record, "a")]
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=jobs_alias):
            lost = enqueue(record, "b")
            raise ZeroDivisionError
        with transaction.atomic(using=jobs_alias):
            kept.append(enqueue(record, "c"))
    again = stage(jobs_alias, record.call("b"))[0]
    assert relay.tick(jobs_alias) == 3
    assert {job.id for job in jobs()} == {one.id for one in (*kept, again)}
    with pytest.raises(JobNotFound):
        get(lost.id)


def test_a_rolled_back_first_savepoint_does_not_take_the_wake_up_with_it(jobs_alias: str) -> None:
    hints: list[Any] = []
    forget = waking.subscribe(hints.append)
    try:
        with transaction.atomic(using=jobs_alias):
            with pytest.raises(ZeroDivisionError), transaction.atomic(using=jobs_alias):
                enqueue(record, "a")
                raise ZeroDivisionError
            enqueue(record, "b")
            enqueue(record, "c")
            assert hints == []
        assert hints == [waking.Hint.STAGED]
    finally:
        forget()


def test_a_decorated_function_that_is_tried_again_after_a_rollback_wakes_the_relay(
    jobs_alias: str,
) -> None:
    """One decorator is one ``atomic`` object for all its calls."""
    hints: list[Any] = []

    @transaction.atomic(using=jobs_alias)
    def work(fault: bool) -> None:
        enqueue(noop)
        assert not fault

    forget = waking.subscribe(hints.append)
    try:
        with pytest.raises(AssertionError):
            work(True)
        for number in (1, 2):
            work(False)
            assert hints == [waking.Hint.STAGED] * number
    finally:
        forget()


def test_with_autocommit_off_a_job_is_staged_and_follows_the_commit(jobs_alias: str) -> None:
    connection = connections[jobs_alias]
    connection.set_autocommit(False)
    try:
        lost = enqueue(record, "a")
        connection.rollback()
        kept = enqueue(record, "b")
        assert (lost.status, kept.status) == ("staged", "staged")
        connection.commit()
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert relay.tick(jobs_alias) == 1
    assert {job.id for job in jobs()} == {kept.id}


def test_entries_become_jobs_in_the_order_they_were_staged(jobs_alias: str) -> None:
    staged = stage(jobs_alias, *[noop.call(n) for n in range(20)])
    seqs = dict(outbox(jobs_alias).values_list("id", "seq"))
    assert [seqs[one.id] for one in staged] == sorted(seqs.values())
    token = new_token()
    assert list(outbox(jobs_alias).claim(token, limit=7, lease=30)) == sorted(seqs.values())[:7]
    with transaction.atomic(using=jobs_alias):
        claimed = outbox(jobs_alias).claimed(token, list(seqs.values()))
    assert [one["id"] for one in claimed] == [one.id for one in staged[:7]]


def test_bulk_and_single_rows_are_the_same_in_every_column(jobs_alias: str) -> None:
    """ENQ-10; staged and direct."""
    at = datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)

    def calls(mark: str) -> list[Any]:
        return [
            record.using(queue="q1", priority=3).call(f"{mark}a"),
            record.using(run_at=at).call(f"{mark}b"),
            record.using(tenant="t", enqueued_by="ann").call(f"{mark}c"),
            fails.call(times=2, key="x"),
            tenanted.call("t2", f"{mark}d"),
        ]

    groups = [
        enqueue_many(calls("1")),
        [enqueue_many([call])[0] for call in calls("2")],
        stage(jobs_alias, *calls("3")),
        [stage(jobs_alias, call)[0] for call in calls("4")],
    ]
    while relay.tick(jobs_alias):
        pass
    ours = ("id", "run_id", "idempotency_key", "payload", "run_at", "created_at")
    seen = []
    for group in groups:
        rows = [Job.objects.filter(id=one.id).values().get() for one in group]
        assert rows[1]["run_at"] == at
        assert rows[1]["state"] == "delayed"
        seen.append([{k: v for k, v in row.items() if k not in ours} for row in rows])
    assert seen[0] == seen[1] == seen[2] == seen[3]


def many_in_one_call(count: int) -> None:
    results = enqueue_many(record.call(str(n)) for n in range(count))
    assert len({one.id for one in results}) == count
    while relay.tick("default"):
        pass
    assert jobs().filter(state="ready").count() == count


@postgres_only
def test_thousands_of_jobs_in_one_call_are_staged_in_one_transaction() -> None:
    many_in_one_call(3_000)
    with pytest.raises(EnqueueError):
        enqueue_many([*(record.call(f"x{n}") for n in range(2_000)), record.call(3)])  # type: ignore[arg-type]
    assert not outbox().pending().exists()


@pytest.mark.soak
@pytest.mark.timeout(300)
@postgres_only
def test_seventy_thousand_jobs_in_one_call() -> None:
    many_in_one_call(70_000)


# --- the claim -----------------------------------------------------------------------------------


def test_a_claim_is_a_lease_that_others_respect_until_it_runs_out(jobs_alias: str) -> None:
    stage(jobs_alias, noop.call(1), noop.call(2))
    first, second = new_token(), new_token()
    seqs = outbox(jobs_alias).claim(first, limit=9, lease=30)
    assert len(seqs) == 2
    assert not outbox(jobs_alias).claim(second, limit=9, lease=30)
    assert outbox(jobs_alias).pending().count() == 2
    pass_time(jobs_alias)
    assert list(outbox(jobs_alias).claim(second, limit=9, lease=30)) == list(seqs)


def test_only_the_holder_releases_and_marks_and_the_first_mark_stays(jobs_alias: str) -> None:
    stage(jobs_alias, noop.call())
    stale, holder = new_token(), new_token()
    (seq,) = outbox(jobs_alias).claim(stale, limit=9, lease=30)
    pass_time(jobs_alias)
    assert list(outbox(jobs_alias).claim(holder, limit=9, lease=30)) == [seq]
    for token, count in ((stale, 0), (holder, 1)):
        with transaction.atomic(using=jobs_alias):
            assert len(outbox(jobs_alias).claimed(token, [seq])) == count
        assert outbox(jobs_alias).release(token, [seq]) == count
        if token == holder:
            assert list(outbox(jobs_alias).claim(holder, limit=9, lease=30)) == [seq]
        assert outbox(jobs_alias).mark(token, {seq: (PUBLISHED, None)}) == count
    first = outbox(jobs_alias).get(seq=seq)
    assert first.published_at is not None
    assert outbox(jobs_alias).mark(holder, {seq: (DEDUPED, new_token())}) == 0
    assert outbox(jobs_alias).release(holder, [seq]) == 0
    assert outbox(jobs_alias).fail(holder, seq, "late", delay=1, limit=1) == 0
    again = outbox(jobs_alias).get(seq=seq)
    assert (again.published_at, again.outcome) == (first.published_at, PUBLISHED)


def test_a_release_hands_back_at_once_and_of_nothing_asks_nothing(
    jobs_alias: str, django_assert_num_queries: Any
) -> None:
    stage(jobs_alias, noop.call())
    token = new_token()
    seqs = outbox(jobs_alias).claim(token, limit=9, lease=30)
    with django_assert_num_queries(0, connection=connections[jobs_alias]):
        assert outbox(jobs_alias).release(token, []) == 0
    assert outbox(jobs_alias).release(token, seqs) == 1
    assert list(outbox(jobs_alias).claim(new_token(), limit=9, lease=30)) == list(seqs)


def test_a_relay_that_slept_past_its_claim_publishes_nothing(jobs_alias: str) -> None:
    stage(jobs_alias, record.call("k"))
    stale = new_token()
    seqs = dict.fromkeys(outbox(jobs_alias).claim(stale, limit=9, lease=30))
    pass_time(jobs_alias)
    assert relay.tick(jobs_alias) == 1
    jobs().update(state="done")
    assert publishing.publish_claimed(jobs_alias, jobs_alias, stale, seqs).outcomes == {}
    assert jobs().count() == 1


def test_while_one_part_of_a_transaction_is_claimed_the_rest_waits(jobs_alias: str) -> None:
    """Else a second relay could publish the later part first."""
    first = stage(jobs_alias, *[noop.call(n) for n in range(4)])
    other = stage(jobs_alias, noop.call(9))
    token = new_token()
    assert len(outbox(jobs_alias).claim(token, limit=2, lease=30)) == 2
    rest = outbox(jobs_alias).claim(new_token(), limit=9, lease=30)
    assert [outbox(jobs_alias).get(seq=seq).id for seq in rest] == [other[0].id]
    seqs = outbox(jobs_alias).filter(claimed_by=token).values_list("seq", flat=True)
    seqs = dict.fromkeys(seqs)
    publishing.publish_claimed(jobs_alias, jobs_alias, token, seqs)
    later = outbox(jobs_alias).claim(new_token(), limit=9, lease=30)
    assert [outbox(jobs_alias).get(seq=seq).id for seq in later] == [one.id for one in first[2:]]


@postgres_only
def test_a_relay_that_meets_another_in_its_claim_goes_home_empty() -> None:
    stage("default", noop.call(1), noop.call(2))
    with party() as other:
        block = transaction.atomic()
        other.do(block.__enter__)
        assert len(other.do(lambda: outbox().claim(new_token(), limit=1, lease=30))) == 1
        assert not outbox().claim(new_token(), limit=9, lease=30)
        other.do(block.__exit__, None, None, None)


@postgres_only
def test_relays_side_by_side_publish_every_entry_once_in_the_order_of_its_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "BATCH", 4)  # Each transaction takes two claims.
    for batch in range(30):
        stage("default", *[noop.call(batch * 100 + n) for n in range(7)])

    def until_empty() -> int:
        done = 0
        while outbox().pending().exists():
            done += relay.tick("default")
        return done

    assert sum(at_once(*[until_empty] * 3)) == 210
    assert jobs().count() == 210
    assert set(outbox().values_list("outcome", flat=True)) == {PUBLISHED}
    published: dict[Any, list[datetime]] = {}
    for batch_id, at in outbox().order_by("seq").values_list("batch", "published_at"):
        published.setdefault(batch_id, []).append(at)
    assert len(published) == 30
    assert all(times == sorted(times) for times in published.values())
    assert any(len(set(times)) > 1 for times in published.values())


# --- entries that fail ---------------------------------------------------------------------------


def test_a_failing_entry_stops_what_follows_it_in_its_transaction_and_nothing_else(
    jobs_alias: str,
) -> None:
    before, bad, after = stage(jobs_alias, *[noop.call(n) for n in range(3)])
    others = stage(jobs_alias, noop.call(7), noop.call(8))
    other_tenant = outbox(jobs_alias).filter(id=others[1].id)
    other_tenant.update(tenant="t", batch=entry(jobs_alias, bad.id).batch)
    spoil(jobs_alias, bad.id)
    assert relay.tick(jobs_alias) == 3
    assert {job.id for job in jobs()} == {before.id, *(one.id for one in others)}
    failed = entry(jobs_alias, bad.id)
    assert failed.attempts == 1
    assert failed.last_error
    assert failed.claimed_by is None
    assert entry(jobs_alias, after.id).claimed_by is None
    assert relay.tick(jobs_alias) == 0  # It waits, and what follows it waits with it.
    pass_time(jobs_alias)
    outbox(jobs_alias).filter(id=bad.id).update(payload="[]")
    assert relay.tick(jobs_alias) == 2
    assert row(after.id).state == "ready"


def test_an_entry_that_fails_over_and_over_backs_off_and_is_set_aside(
    jobs_alias: str, settings: Any
) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "PUBLISH_ATTEMPTS": 3}
    bad, after = stage(jobs_alias, noop.call(1), noop.call(2))
    spoil(jobs_alias, bad.id)
    waits = []
    for _ in range(2):
        assert relay.tick(jobs_alias) == 0
        failed = entry(jobs_alias, bad.id)
        assert failed.next_try_at is not None
        waits.append((failed.next_try_at - datetime.now(UTC)).total_seconds())
        pass_time(jobs_alias)
    assert 0.3 < waits[0] <= 1 <= 2 * waits[1] <= 4  # 2 ** n seconds, halved at most.
    relay.tick(jobs_alias)
    assert get(bad.id).state == QUARANTINED
    assert get(bad.id).reason
    relay.tick(jobs_alias)
    assert get(after.id).state == "ready"
    outbox(jobs_alias).filter(id=bad.id).update(payload="[]")
    django_jobs.retry(bad.id, by="ann", reason="mended")
    shown = get(bad.id)
    assert (shown.state, shown.retried_by, shown.retry_reason) == ("staged", "ann", "mended")
    assert entry(jobs_alias, bad.id).attempts == 0
    assert relay.tick(jobs_alias) == 1
    assert get(bad.id).state == "ready"


def test_a_quarantined_entry_can_be_cancelled_and_only_by_its_tenant(jobs_alias: str) -> None:
    (bad,) = stage(jobs_alias, tenanted.call("a", "k"))
    outbox(jobs_alias).filter(id=bad.id).update(outcome=QUARANTINED)
    for refuse in (django_jobs.cancel, django_jobs.retry, get):
        with pytest.raises(JobNotFound):
            refuse(bad.id, tenant="b")
    assert django_jobs.cancel(bad.id, tenant="a") == "staged"
    assert get(bad.id).state == "cancelled"


# --- every id resolves [d15] ---------------------------------------------------------------------


def deduplicated(alias: str, tenant: str = "a") -> tuple[Any, Any]:
    """The receipt of a staged call, and the job that stands for it."""
    receipt = stage(alias, tenanted.call(tenant, "k"))[0]
    live = enqueue(tenanted, tenant, "k")
    assert relay.tick(alias) == 1
    return receipt, live


def test_a_receipt_shows_the_job_that_stands_for_it(jobs_alias: str) -> None:
    receipt, live = deduplicated(jobs_alias)
    shown = get(receipt.id, tenant="a")
    assert (shown.id, shown.job_id, shown.deduped) == (receipt.id, live.id, True)
    assert shown.state == "ready"
    with pytest.raises(JobNotFound):
        get(receipt.id, tenant="b")
    jobs().filter(id=live.id).update(state="done", result="x")
    assert (get(receipt.id).state, get(receipt.id).result) == ("done", "x")


def test_a_receipt_cancels_and_retries_the_other_callers_job_only_when_told_to_follow(
    jobs_alias: str,
) -> None:
    receipt, live = deduplicated(jobs_alias)
    with pytest.raises(NotYourJob, match=str(live.id)):
        django_jobs.cancel(receipt.id)
    with pytest.raises(JobNotFound):
        django_jobs.cancel(receipt.id, tenant="b", follow=True)
    assert get(live.id).state == "ready"
    assert django_jobs.cancel(receipt.id, tenant="a", follow=True, by="ann") == "ready"
    assert row(live.id).cancelled_by == "ann"
    with pytest.raises(NotYourJob, match=str(live.id)):
        django_jobs.retry(receipt.id, force=True)
    with pytest.raises(JobNotFound):
        django_jobs.retry(receipt.id, tenant="b", force=True)
    assert get(live.id).state == "cancelled"


def test_a_staged_job_is_cancelled_before_it_exists_and_never_does(jobs_alias: str) -> None:
    (staged,) = stage(jobs_alias, tenanted.call("a", "k"))
    with pytest.raises(JobNotFound):
        django_jobs.cancel(staged.id, tenant="b")
    assert django_jobs.cancel(staged.id, tenant="a", by="ann", reason="why") == "staged"
    shown = get(staged.id)
    assert (shown.state, shown.cancelled_by, shown.reason) == ("cancelled", "ann", "why")
    with pytest.raises(NotCancellable):
        django_jobs.cancel(staged.id)
    with pytest.raises(JobNotFound):  # A stranger does not learn that it exists, now either.
        django_jobs.cancel(staged.id, tenant="b")
    assert relay.tick(jobs_alias) == 0
    assert jobs().count() == 0


@postgres_only
def test_a_cancel_that_meets_the_relay_cancels_the_job_it_has_become() -> None:
    (staged,) = stage("default", record.call("k"))
    token = new_token()
    seqs = dict.fromkeys(outbox().claim(token, limit=9, lease=30))
    with party() as other, party() as caller:
        block = transaction.atomic()
        other.do(block.__enter__)
        other.do(lambda: publishing.publish_claimed("default", "default", token, seqs))
        cancelling = caller.start(django_jobs.cancel, staged.id)
        until_one_waits()
        other.do(block.__exit__, None, None, None)
        assert cancelling.result(30) == "ready"
    assert row(staged.id).state == "cancelled"


def test_a_look_that_meets_the_relay_finds_the_job_it_has_become(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (staged,) = stage(jobs_alias, record.call("k"))
    look = standing._job
    looks: list[Any] = []

    def published_meanwhile(job_id: Any) -> Any:
        found = look(job_id)
        looks.append(found)
        if len(looks) == 1:
            assert relay.tick(jobs_alias) == 1
        return found

    monkeypatch.setattr(standing, "_job", published_meanwhile)
    assert get(staged.id).state == "ready"


# --- two databases -------------------------------------------------------------------------------


@pytest.fixture
def two_databases(settings: Any, transactional_db: None) -> Iterator[None]:
    """Jobs in ``other``, business rows and an outbox in ``default``."""
    changed = {"DATABASE": "other", "OUTBOX_DATABASES": ["default", "other"]}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **changed}
    yield


both = pytest.mark.django_db(transaction=True, databases="__all__")


@both
def test_a_job_follows_the_transaction_of_its_business_rows(two_databases: None) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Account.objects.create(name="lost")
        enqueue(record, "lost")
        raise ZeroDivisionError
    with transaction.atomic():
        Account.objects.create(name="kept")
        staged = enqueue(record, "kept")
    assert outbox("default").count() == 1
    assert outbox("other").count() == 0
    assert get(staged.id).state == "staged"
    assert relay.tick("default") == 1
    assert get(staged.id).state == "ready"
    assert {job.id for job in Job.objects.using("other")} == {staged.id}
    assert Job.objects.using("default").count() == 0
    assert entry("default", staged.id).outcome == PUBLISHED


@both
def test_a_crash_between_publish_and_mark_leaves_one_job_after_the_repeat(
    two_databases: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transaction.atomic():
        staged = enqueue_many([record.call("a"), record.call("b")])
    with monkeypatch.context() as crash:
        crash.setattr(OutboxQuerySet, "mark", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            relay.tick("default")
    assert jobs().count() == 2
    assert outbox("default").pending().count() == 2
    jobs().filter(id=staged[0].id).update(state="done", finished_at=Now())
    pass_time("default")
    assert relay.tick("default") == 2
    assert jobs().count() == 2
    assert [get(one.id).state for one in staged] == ["done", "ready"]
    assert set(outbox("default").values_list("outcome", flat=True)) == {PUBLISHED}


@both
def test_an_entry_whose_job_exists_already_is_cancelled_together_with_it(
    two_databases: None,
) -> None:
    """The relay died between publish and mark: the entry looks unpublished and the job runs."""
    with transaction.atomic():
        staged = enqueue(record, "a")
    crashed = outbox("default").get(id=staged.id)
    entry = {name: getattr(crashed, name, None) for name in publishing.PUBLISH_TYPES}
    publishing.insert_jobs("other", [entry])
    assert django_jobs.cancel(staged.id, by="ann") == "ready"
    assert get(staged.id).state == "cancelled"
    assert relay.tick("default") == 0
    assert not jobs().exclude(state="cancelled").exists()


@both
def test_a_key_that_is_live_in_the_jobs_database_is_found_by_the_relay(
    two_databases: None,
) -> None:
    live = enqueue(record, "k")
    assert live.status == "published"
    with transaction.atomic():
        staged = enqueue(record, "k")
        assert staged.status == "staged"
        with pytest.raises(DuplicateJob):
            enqueue(record.using(on_conflict="error"), "k")
    assert relay.tick("default") == 1
    assert (get(staged.id).job_id, get(staged.id).deduped) == (live.id, True)


@both
def test_the_alias_asked_for_decides_and_an_alias_without_outbox_is_refused(
    two_databases: None,
) -> None:
    with transaction.atomic(using="default"), transaction.atomic(using="other"):
        enqueue(record, "a")
        enqueue(record.using(database="other"), "b")
    assert outbox("default").count() == outbox("other").count() == 1
    with pytest.raises(EnqueueError, match="OUTBOX_DATABASES"):
        enqueue(record.using(database="sqlite"), "c")


@both
def test_going_direct_beside_an_open_transaction_elsewhere_is_refused(settings: Any) -> None:
    with transaction.atomic(using="other"), pytest.raises(OtherDatabaseOpen, match="other"):
        enqueue(record, "a")
    with transaction.atomic(using="other"), transaction.atomic():
        assert enqueue(record, "b").status == "staged"
    changed = {"OUTBOX_DATABASES": ["default", "other"]}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **changed}
    with transaction.atomic(using="other"):
        assert enqueue(record, "c").status == "staged"
        with pytest.raises(OtherDatabaseOpen):
            enqueue(record.using(database="default"), "d")
    assert outbox("other").count() == 1
    assert make(State.READY).state == "ready"
