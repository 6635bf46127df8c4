"""The overflow buffer: bounded queues, tenants served in turn, nothing lost or stuck.

"Case" numbers are those of docs/reference/overflow.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.db.models.functions import Now

import django_jobs
from django_jobs import conf, enqueue, enqueue_many, get
from django_jobs.errors import EnqueueError, SettingsError
from django_jobs.ids import new_token
from django_jobs.loops import overflow, relay, waker
from django_jobs.models import Job, admission, depths, publishing
from django_jobs.models.outbox import DISPLACED, PUBLISHED, QUARANTINED
from django_jobs.models.peeking import peek
from django_jobs.signals import queue_overflowing
from django_jobs.states import State
from django_jobs.testing import drain
from tests.app.jobs import noop, record, reindex
from tests.rows.parties import at_once, jobs, make, party, row
from tests.rows.test_claiming import entry as lane_entry
from tests.rows.test_outbox import entry, outbox, pass_time, postgres_only, spoil, stage

Limit = Callable[..., None]


@pytest.fixture
def limit(settings: Any, caplog: Any) -> Iterator[Limit]:
    """``limit(3)``: what MAX_READY is for this test, and other settings."""

    def change(value: Any, **others: Any) -> None:
        settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "MAX_READY": value, **others}

    caplog.set_level(logging.INFO, "django_jobs")
    yield change
    overflow._open.clear()
    admission._admissions.clear()


def of_tenant(tenant: str, *keys: str, queue: str = "default") -> list[Any]:
    job = record.using(tenant=tenant, queue=queue)
    return [job.call(f"{tenant}{key}") for key in keys]


def stage_in_lane(alias: str, *lanes: str, tenant: str = "", queue: str = "default") -> list[Any]:
    """The ids of entries, each in its own transaction and in a lane of its own."""
    ids = []
    for lane in lanes:
        made = lane_entry(lane=lane, tenant=tenant, queue=queue)
        with transaction.atomic(using=alias):
            publishing.stage(alias, [made], look=False)
        ids.append(made["id"])
    return ids


def ready(**columns: Any) -> Any:
    return jobs().filter(state="ready", blocked=False, **columns)


def finish(count: int = 10_000) -> list[str]:
    """The oldest ready jobs end; their keys. What was known of the depths is no longer true."""
    rows = list(ready().order_by("created_at", "run_at")[:count])
    jobs().filter(id__in=[job.id for job in rows]).update(state="done", finished_at=Now())
    depths.expire()
    return [job.idempotency_key for job in rows]


def waiting(alias: str) -> int:
    return outbox(alias).pending().count()


@contextmanager
def impatient() -> Iterator[None]:
    """Whoever waits for a lock of another fails, and soon."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SET lock_timeout = '200ms'")
        try:
            yield
        finally:
            cursor.execute("RESET lock_timeout")


# --- admission -----------------------------------------------------------------------------------


def test_a_full_queue_takes_no_more_and_the_rest_follows_as_room_appears(
    jobs_alias: str, limit: Limit
) -> None:
    """Cases 117, 119, 128, 130, R30: oldest first, each under the id that its caller was given."""
    limit(3)
    staged = stage(jobs_alias, *[noop.call(n) for n in range(5)])
    assert relay.tick(jobs_alias) == 3
    assert {job.id for job in jobs()} == {one.id for one in staged[:3]}
    depths.expire()
    assert relay.tick(jobs_alias) == 0
    assert [get(one.id).state for one in staged[3:]] == ["staged"] * 2
    finish(1)
    assert relay.tick(jobs_alias) == 1
    assert get(staged[3].id).state == "ready"
    finish()
    assert relay.tick(jobs_alias) == 1
    assert get(staged[4].id).id == get(staged[4].id).job_id == staged[4].id
    assert relay.tick(jobs_alias) == 0


def test_a_full_queue_leaves_its_entries_untouched(jobs_alias: str, limit: Limit) -> None:
    """Case 137: nobody holds what nobody can publish, and it can be cancelled meanwhile."""
    limit(1)
    staged = stage(jobs_alias, *[noop.call(n) for n in range(4)])
    assert relay.tick(jobs_alias) == 1
    depths.expire()
    assert relay.tick(jobs_alias) == 0
    assert not outbox(jobs_alias).pending().exclude(claimed_by=None).exists()
    assert django_jobs.cancel(staged[1].id) == "staged"
    finish()
    assert relay.tick(jobs_alias) == 1
    assert [get(one.id).state for one in staged] == ["done", "cancelled", "ready", "staged"]


def test_a_full_queue_holds_up_no_other_queue(jobs_alias: str, limit: Limit) -> None:
    limit({"narrow": 1, "*": 100})
    stage(
        jobs_alias,
        *[noop.using(queue="narrow").call(n) for n in range(30)],
        *[noop.using(queue="wide").call(n) for n in range(30)],
    )
    while relay.tick(jobs_alias):
        pass
    assert ready(queue="narrow").count() == 1
    assert ready(queue="wide").count() == 30


def test_bypassed_and_scheduled_jobs_go_on_while_the_queue_overflows(
    jobs_alias: str, limit: Limit
) -> None:
    """Cases 82, 83, 138, S16: what is due later takes no room and stands in nobody's way."""
    limit(1)
    stage(jobs_alias, noop.call(1), noop.call(2))
    while relay.tick(jobs_alias):
        pass
    later = stage(jobs_alias, noop.using(delay=3600).call(3), noop.call(4))
    urgent = stage(jobs_alias, noop.using(bypass=True).call(5))
    depths.expire()
    assert relay.tick(jobs_alias) == 2
    assert [get(one.id).state for one in (*later, *urgent)] == ["delayed", "staged", "ready"]
    assert entry(jobs_alias, later[0].id).run_at == jobs().get(id=later[0].id).run_at
    direct = enqueue(noop.using(bypass=True), 6), enqueue(noop.using(delay=60), 7)
    assert [one.status for one in direct] == ["published"] * 2


def test_what_the_waker_makes_ready_does_not_count_against_the_limit(
    jobs_alias: str, limit: Limit
) -> None:
    """The limit bounds admission only [d30]."""
    limit(1)
    for _ in range(3):
        make(State.DELAYED)
    assert waker.wake() == 3
    assert ready().count() == 3


@pytest.mark.parametrize("value", [0, -1, True, "many", 1.5, {"q": 0}, {1: 1}, {"q": None}])
def test_a_limit_that_cannot_work_is_refused(value: Any) -> None:
    """Case 114."""
    with pytest.raises(SettingsError, match="MAX_READY"):
        conf.parse({"MAX_READY": value})


def test_the_limit_of_a_queue_is_its_own_else_the_stars_else_the_default() -> None:
    assert conf.parse({"MAX_READY": {"q": 1, "*": 2}}).ready_limit("q") == 1
    assert conf.parse({"MAX_READY": {"q": 1, "*": 2}}).ready_limit("other") == 2
    assert conf.parse({"MAX_READY": {"q": 1}}).ready_limit("other") == 10_000
    assert conf.parse({"MAX_READY": 5}).ready_limit("other") == 5


def test_bypass_is_a_yes_or_a_no() -> None:
    with pytest.raises(EnqueueError, match="bypass"):
        noop.using(bypass="please")  # type: ignore[arg-type]


def test_drain_runs_what_overflowed_too(
    jobs_alias: str, limit: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has made the room itself, and need not wait until a full queue is counted again."""
    limit(2)
    monkeypatch.setattr(depths, "_ROWS_PER_SECOND", 1)
    stage(jobs_alias, *[noop.call(n) for n in range(9)])
    stage_in_lane(jobs_alias, "a", "b", "c")
    outbox(jobs_alias).update(name=noop.name, payload="{}")
    assert len(drain()) == 12
    assert not jobs().exclude(state="done").exists()


# --- tenants in turn -----------------------------------------------------------------------------


def test_a_fan_out_delays_another_tenant_by_no_more_than_one_chunk(
    jobs_alias: str, limit: Limit
) -> None:
    """With and without an overflow."""
    stage(jobs_alias, *of_tenant("a", *[str(n) for n in range(1_200)]))
    (first,) = stage(jobs_alias, *of_tenant("b", "1"))
    assert relay.tick(jobs_alias) == relay.BATCH
    assert get(first.id).state == "ready"
    (second,) = stage(jobs_alias, *of_tenant("c", "1"))
    limit(510)
    assert relay.tick(jobs_alias) == 10
    assert get(second.id).state == "ready"


def test_tenants_take_turns_and_each_gets_its_oldest_first(jobs_alias: str, limit: Limit) -> None:
    limit(1)
    for tenant in ("b", "a", "c"):
        stage(jobs_alias, *of_tenant(tenant, "1", "2", "3"))
    served = []
    while waiting(jobs_alias) or ready().exists():
        depths.expire()
        relay.tick(jobs_alias)
        served += finish()
    assert [key.removeprefix("record:") for key in served] == [
        *("a1", "b1", "c1"),
        *("a2", "b2", "c2"),
        *("a3", "b3", "c3"),
    ]


def test_a_turn_that_ends_in_the_middle_goes_on_there(jobs_alias: str) -> None:
    """More tenants than one claim takes: it begins after the one that was served last."""
    for tenant in "abcde":
        stage(jobs_alias, *of_tenant(tenant, "1", "2"))
    one = admission.of(jobs_alias)
    taken = []
    for _ in range(4):
        admitted = one.admit(new_token(), limit=3, lease=30)
        taken.append({outbox(jobs_alias).get(seq=seq).idempotency_key for seq in admitted.lanes})
    admission._admissions.clear()
    named = [{key.removeprefix("record:") for key in keys} for keys in taken]
    # What follows a leased entry in its own transaction waits until that is published.
    assert named == [{"a1", "b1", "c1"}, {"d1", "e1", "d2"}, set(), set()]


def test_the_order_of_the_claim_is_rounds_of_tenants_and_rows_come_back_by_seq(
    jobs_alias: str,
) -> None:
    for tenant in "ab":
        stage(jobs_alias, *of_tenant(tenant, "1", "2", "3"))
    claims = outbox(jobs_alias).claim(new_token(), limit=4, lease=30)
    assert list(claims) == sorted(claims)
    turns = sorted((claim.turn, claim.tenant) for claim in claims.values())
    assert turns == [(1, "a"), (2, "b"), (3, "a"), (4, "b")]
    assert {claim.buffer for claim in claims.values()} == {"default"}


@pytest.mark.parametrize("room", [0, 1, 2, 5, None])
def test_a_claim_takes_no_more_of_a_buffer_than_it_is_told(
    jobs_alias: str, room: int | None
) -> None:
    stage(jobs_alias, *of_tenant("a", "1", "2"), *of_tenant("b", "1", "2"))
    stage(jobs_alias, *of_tenant("a", "9", queue="other"))
    places = [{"buffer": "default", "room": room, "after": None}]
    claims = outbox(jobs_alias).claim(new_token(), limit=9, lease=30, places=places)
    taken = [claim.queue for claim in claims.values()]
    assert taken.count("default") == min(4, 4 if room is None else room)
    assert taken.count("other") == 1


@pytest.mark.parametrize(("after", "first"), [(None, "a"), ("a", "b"), ("b", "c"), ("c", "a")])
def test_a_walk_begins_after_the_tenant_it_is_told_and_comes_round(
    jobs_alias: str, after: str | None, first: str
) -> None:
    for tenant in "abc":
        stage(jobs_alias, *of_tenant(tenant, "1"))
    places = [{"buffer": "default", "room": 1, "after": after}]
    (claim,) = outbox(jobs_alias).claim(new_token(), limit=9, lease=30, places=places).values()
    assert claim.tenant == first


@postgres_only
def test_a_locked_entry_keeps_its_whole_order_group_back() -> None:
    """If that lock is rolled back, later entries must not have been published before it."""
    group = stage("default", *[noop.call(n) for n in range(3)])
    other = stage("default", noop.call(9))
    with party() as holder:
        block = transaction.atomic()
        holder.do(block.__enter__)
        holder.do(lambda: list(outbox().select_for_update().filter(id=group[1].id)))
        with impatient():
            claims = outbox().claim(new_token(), limit=9, lease=30)
        assert [entry("default", o.id).seq for o in other] == list(claims)
        holder.do(block.__exit__, KeyboardInterrupt, None, None)
    assert len(outbox().claim(new_token(), limit=9, lease=30)) == 3


def test_a_large_held_group_stops_its_tenant_only(jobs_alias: str) -> None:
    """The claim looks at the head of a tenant, however much of one transaction stands there."""
    big = stage(jobs_alias, *of_tenant("a", *[str(n) for n in range(2_600)]))
    (other,) = stage(jobs_alias, *of_tenant("b", "1"))
    spoil(jobs_alias, big[0].id)
    assert relay.tick(jobs_alias) == 1
    assert get(other.id).state == "ready"
    assert relay.tick(jobs_alias) == 0
    outbox(jobs_alias).filter(id=big[0].id).update(payload='["x"]')
    pass_time(jobs_alias)
    assert relay.tick(jobs_alias) == relay.BATCH


@postgres_only
def test_relays_side_by_side_keep_the_limit_and_publish_every_entry_once(limit: Limit) -> None:
    """Cases 134, R35."""
    limit(25)
    for batch in range(10):
        stage("default", *of_tenant("abc"[batch % 3], *[f"{batch}-{n}" for n in range(11)]))
    deepest = []

    def relay_and_run() -> None:
        while waiting("default"):
            relay.tick("default")
            deepest.append(ready().count())
            finish(10)

    at_once(*[relay_and_run] * 3)
    assert jobs().count() == 110
    assert set(outbox().values_list("outcome", flat=True)) == {PUBLISHED}
    # Two that count at the same moment may each admit what there was room for.
    assert max(deepest) <= 3 * 25


# --- enqueues outside a transaction ---------------------------------------------------------------


def test_an_enqueue_to_a_full_queue_waits_in_the_outbox(jobs_alias: str, limit: Limit) -> None:
    """Cases 100, 115: when it returns, the entry is committed."""
    limit(2)
    assert [enqueue(noop, n).status for n in range(2)] == ["published"] * 2
    third = enqueue(noop, 3)
    assert third.status == "staged"
    with party() as other:
        assert other.do(lambda: get(third.id).state) == "staged"
    finish()
    assert relay.tick(jobs_alias) == 1
    assert get(third.id).state == "ready"


def test_many_calls_at_once_for_a_full_queue_wait_all_or_none(
    jobs_alias: str, limit: Limit
) -> None:
    """Cases 99, 104, 105, 113."""
    limit({"full": 1})
    enqueue(noop.using(queue="full"), 1)
    calls = [noop.using(queue=queue).call(2) for queue in ("full", "free")]
    with pytest.raises(EnqueueError):
        enqueue_many([*calls, record.call(3)])  # type: ignore[arg-type]
    assert not waiting(jobs_alias)
    assert [one.status for one in enqueue_many(calls)] == ["staged"] * 2
    assert enqueue(noop.using(queue="free"), 3).status == "published"


def test_a_newcomer_goes_behind_what_waits_until_the_overflow_is_over(
    jobs_alias: str, limit: Limit
) -> None:
    """Cases 118, 123, R32: below the limit is not enough, nor is the low water alone."""
    limit(10)
    stage(jobs_alias, *[noop.call(n) for n in range(25)])
    while relay.tick(jobs_alias):
        depths.expire()
    assert depths.known()["default"].overflowing
    finish(5)
    assert enqueue(noop, 90).status == "staged"  # 5 are ready, and 15 wait.
    while waiting(jobs_alias):
        depths.expire()
        relay.tick(jobs_alias)
        finish(1)
    assert ready().count() == 9
    assert enqueue(noop, 91).status == "published"  # Nothing waits any more: 10 ready.
    finish(2)
    relay.tick(jobs_alias)
    assert depths.known()["default"].overflowing is False
    finish(10)
    assert enqueue(noop, 92).status == "published"


def test_a_shallow_queue_is_counted_once_a_second_and_not_for_each_enqueue(
    jobs_alias: str,
) -> None:
    enqueue(noop, 1)
    assert depths.known()["default"].depth == 1
    with connections[jobs_alias].execute_wrapper(_refuse_counting):
        for number in range(3):
            assert enqueue(noop, number).status == "published"
    assert depths.known()["default"].depth == 4


def _refuse_counting(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    assert "RECURSIVE" not in sql, sql
    return execute(sql, params, many, context)


def test_in_a_test_cases_transaction_nothing_is_counted(jobs_alias: str, limit: Limit) -> None:
    """A project's assertNumQueries must not depend on when the queue was counted last."""
    limit(1)
    make(State.READY)
    block: Any = transaction.atomic(using=jobs_alias)
    block._from_testcase = True
    with block, connections[jobs_alias].execute_wrapper(_refuse_counting):
        assert enqueue(noop, 1).status == "published"


# --- lanes ---------------------------------------------------------------------------------------


def test_a_lane_entry_over_the_limit_becomes_a_blocked_job_at_once(
    jobs_alias: str, limit: Limit
) -> None:
    """Cases 81, 126, 127, 129: it exists, holds its lane and its key, and nobody claims it."""
    limit(1)
    stage(jobs_alias, noop.call(1), noop.call(2))
    assert relay.tick(jobs_alias) == 1
    (in_lane,) = stage_in_lane(jobs_alias, "doc")
    depths.expire()
    assert relay.tick(jobs_alias) == 1
    job = jobs().get(id=in_lane)
    assert (job.state, job.blocked, job.lane) == ("ready", True, "doc")
    assert len(jobs().claim("default", room=9, lease=30, worker="w")) == 1
    assert waiting(jobs_alias) == 1


def test_a_lane_entry_with_room_is_an_ordinary_ready_job(jobs_alias: str, limit: Limit) -> None:
    limit(2)
    (first, second, third) = stage_in_lane(jobs_alias, "a", "b", "c")
    assert relay.tick(jobs_alias) == 3
    states = [jobs().get(id=id_).blocked for id_ in (first, second, third)]
    assert states == [False, False, True]


def test_a_scheduled_lane_job_is_delayed_and_not_blocked(jobs_alias: str, limit: Limit) -> None:
    limit(1)
    make(State.READY)
    made = lane_entry(lane="doc", delay=3600.0)
    with transaction.atomic(using=jobs_alias):
        publishing.stage(jobs_alias, [made], look=False)
    assert relay.tick(jobs_alias) == 1
    job = jobs().get(id=made["id"])
    assert (job.state, job.blocked) == ("delayed", False)


def test_blocked_jobs_get_room_in_turn_and_oldest_first(jobs_alias: str, limit: Limit) -> None:
    limit(1)
    make(State.READY)
    ids = {}
    for tenant in "ab":
        for number in (1, 2, 3):
            job = make(State.READY, blocked=True, lane=f"{tenant}{number}", tenant=tenant)
            jobs().filter(id=job.id).update(run_at=Now() - timedelta(hours=4 - number))
            ids[job.id] = f"{tenant}{number}"
    served = []
    for _ in range(7):
        finish()
        relay.tick(jobs_alias)
        served += [ids[job.id] for job in ready()]
    assert served == ["a1", "b1", "a2", "b2", "a3", "b3"]


def test_blocked_jobs_and_the_buffer_share_the_room(jobs_alias: str, limit: Limit) -> None:
    """Neither starves, not even where there is room for one at a time."""
    limit(1)
    stage(jobs_alias, *[noop.call(n) for n in range(6)])
    for number in range(6):
        make(State.READY, blocked=True, lane=f"l{number}")
    served = []
    for _ in range(16):
        depths.expire()
        relay.tick(jobs_alias)
        served += ["lane" if job.lane else "buffer" for job in ready()]
        assert ready().count() <= 1
        finish()
    assert sorted(served) == ["buffer"] * 6 + ["lane"] * 6
    assert {"lane", "buffer"} == set(served[:3]) == set(served[3:6]) == set(served[6:9])


def test_a_fresh_relay_finds_blocked_jobs_with_nothing_staged(
    jobs_alias: str, limit: Limit
) -> None:
    job = make(State.READY, blocked=True, lane="doc")
    depths.forget()
    seen = peek(jobs_alias, [jobs_alias], ["default"])
    assert seen.staged and not seen.ready and not seen.nothing_left
    assert relay.tick(jobs_alias) == 1
    assert jobs().get(id=job.id).blocked is False
    assert not peek(jobs_alias, [jobs_alias], ["default"]).staged


@postgres_only
def test_a_blocked_job_that_somebody_cancels_meanwhile_is_passed_over(limit: Limit) -> None:
    job, other = (make(State.READY, blocked=True, lane=lane) for lane in "ab")
    with party() as holder:
        block = transaction.atomic()
        holder.do(block.__enter__)
        holder.do(lambda: jobs().cancel(job.id, tenant=None, by="", reason=""))
        with impatient():
            assert relay.tick("default") == 1
        holder.do(block.__exit__, None, None, None)
    assert jobs().get(id=job.id).state == "cancelled"
    assert jobs().get(id=other.id).blocked is False


def test_a_displaced_entry_is_never_admitted(jobs_alias: str, limit: Limit) -> None:
    """Cases 84, 125, 131, 132, R25 to R28."""
    staged = stage(jobs_alias, noop.call(1))
    outbox(jobs_alias).filter(id=staged[0].id).update(outcome=DISPLACED)
    assert relay.tick(jobs_alias) == 0
    assert jobs().count() == 0


@postgres_only
def test_beside_jobs_elsewhere_a_lane_s_entries_are_claimed_in_order_by_one_relay(
    settings: Any, transactional_db: None
) -> None:
    """Nothing displaces an older entry there: publishing it later would let old data win."""
    changed = {"DATABASE": "other", "OUTBOX_DATABASES": ["default", "other"]}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **changed}
    ids = [*stage_in_lane("default", "doc", "doc"), *stage_in_lane("default", "another")]
    seqs = [entry("default", id_).seq for id_ in ids]
    outbox("default").filter(seq=seqs[0]).update(
        claimed_by=new_token(), claimed_until=Now() + timedelta(seconds=30)
    )
    assert list(outbox("default").claim(new_token(), limit=9, lease=30)) == [seqs[2]]
    outbox("default").update(claimed_until=None, claimed_by=None)
    # One that was staged earlier and committed later goes after what another relay has begun.
    outbox("default").filter(seq=seqs[1]).update(
        claimed_by=new_token(), claimed_until=Now() + timedelta(seconds=30)
    )
    assert list(outbox("default").claim(new_token(), limit=9, lease=30)) == [seqs[2]]
    outbox("default").update(claimed_until=None, claimed_by=None)
    # Its order group is held by another entry, which says nothing about this lane.
    held = lane_entry(batch=entry("default", ids[0]).batch)
    with transaction.atomic():
        publishing.stage("default", [held], look=False)
    outbox("default").filter(id=held["id"]).update(next_try_at=Now() + timedelta(seconds=30))
    assert list(outbox("default").claim(new_token(), limit=9, lease=30)) == [seqs[2]]
    pass_time("default")
    claims = outbox("default").claim(new_token(), limit=9, lease=30)
    assert set(seqs) <= set(claims)
    assert claims[seqs[0]].lane == ("tests.row", "", "doc")


# --- failures ------------------------------------------------------------------------------------


def test_a_quarantined_entry_gets_one_more_chance_when_the_queue_is_healthy_and_only_one(
    jobs_alias: str, limit: Limit
) -> None:
    """Cases 110, 120, 121, 122, R34."""
    limit(10, PUBLISH_ATTEMPTS=1)
    (bad,) = stage(jobs_alias, noop.call(1))
    spoil(jobs_alias, bad.id)
    (good,) = stage(jobs_alias, noop.call(2))
    assert relay.tick(jobs_alias) == 1
    assert (get(bad.id).state, get(good.id).state) == (QUARANTINED, "ready")
    stage(jobs_alias, *[noop.call(n) for n in range(12)])
    assert admission.revive() == 0  # Something waits.
    while relay.tick(jobs_alias):
        depths.expire()
    outbox(jobs_alias).pending().delete()
    depths.expire()
    assert admission.revive() == 0  # The queue is full.
    finish()
    assert admission.revive() == 1
    assert relay.tick(jobs_alias) == 0
    assert (get(bad.id).state, entry(jobs_alias, bad.id).attempts) == (QUARANTINED, 2)
    assert admission.revive() == 0
    outbox(jobs_alias).filter(id=bad.id).update(payload="[]")
    django_jobs.retry(bad.id)
    assert relay.tick(jobs_alias) == 1
    assert get(bad.id).state == "ready"


@postgres_only
def test_beside_jobs_elsewhere_a_lane_entry_stays_quarantined(settings: Any) -> None:
    """A newer one may have been published, and would be superseded by the older."""
    changed = {"DATABASE": "other", "OUTBOX_DATABASES": ["default", "other"]}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **changed}
    in_lane, plain = stage_in_lane("default", "doc", "gone")
    outbox("default").update(outcome=QUARANTINED, attempts=5)
    outbox("default").filter(id=plain).update(lane=None)
    assert admission.revive() == 1
    assert entry("default", in_lane).outcome == QUARANTINED


@postgres_only
def test_a_fault_that_is_not_the_entry_s_does_not_count_against_it() -> None:
    """Case 133: somebody else's transaction holds the key, and we may not wait."""
    (staged,) = stage("default", record.call("k"))
    with party() as other:
        block = transaction.atomic()
        other.do(block.__enter__)
        other.do(lambda: make(State.READY, name=record.name, idempotency_key="record:k"))
        with impatient(), suppress(OperationalError):
            relay.tick("default")
        other.do(block.__exit__, KeyboardInterrupt, None, None)
    assert entry("default", staged.id).attempts == 0
    pass_time("default")
    assert relay.tick("default") == 1


# --- what operators see --------------------------------------------------------------------------


def test_an_overflow_says_when_it_begins_and_when_it_ends_and_that_it_lasts(
    jobs_alias: str, limit: Limit, caplog: Any, monkeypatch: Any
) -> None:
    """Cases 116, 118, 124: one line each, and one alert for each interval."""
    limit(5, OVERFLOW_ALERT=60)
    clock = [1000.0]
    monkeypatch.setattr(overflow.time, "monotonic", lambda: clock[0])
    alerts: list[dict[str, Any]] = []

    def note(**given: Any) -> None:
        alerts.append(given)

    def tick(seconds: float) -> None:
        clock[0] += seconds
        depths.expire()
        relay.tick(jobs_alias)

    queue_overflowing.connect(note)
    stage(jobs_alias, *[noop.call(n) for n in range(9)])
    for _ in range(4):
        tick(1)
    assert alerts == []
    for seconds in (60, 1, 60):
        tick(seconds)
    finish()
    tick(1)
    finish()
    tick(1)
    queue_overflowing.disconnect(note)
    assert [(a["sender"], a["depth"], a["backlog"]) for a in alerts] == [("default", 5, 4)] * 2
    lines = [r.getMessage() for r in caplog.records if r.name == "django_jobs.overflow"]
    assert len(lines) == 4
    assert lines[0] == "queue default overflows: 5 ready, limit 5; 4 wait"
    assert "has overflowed for" in lines[1] and "MAX_READY" in lines[1]
    assert lines[3].startswith("queue default has room again after")
    assert not overflow.is_open()


# --- what it costs -------------------------------------------------------------------------------

_MANY = """
INSERT INTO django_jobs_outbox
    (id, name, queue, buffer, tenant, idempotency_key, payload, batch, outcome)
SELECT gen_random_uuid(), 'tests.many', 'default', 'default', 't' || (n %% %(tenants)s), n, '[]',
    md5((n / 100)::text)::uuid, %(outcome)s
FROM generate_series(1, %(count)s) AS n
"""


def pages_read(count: int, tenants: int, *, held: bool = False) -> int:
    """How many pages one claim of 100 touches, of ``count`` entries after as many published.

    With ``held`` all of them are one order group that waits, and one entry of another is claimed.
    """
    token = new_token()
    statements: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append((sql, params))
        return execute(sql, params, many, context)

    connection = connections["default"]
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_jobs_outbox")
        for outcome in ("published", None):
            cursor.execute(_MANY, {"count": count, "tenants": tenants, "outcome": outcome})
        if held:
            cursor.execute("UPDATE django_jobs_outbox SET batch = %s", [token])
            later = Now() + timedelta(hours=1)
            first = outbox().pending().order_by("seq").values("seq")[:1]
            outbox().filter(seq__in=first).update(next_try_at=later)
            stage("default", *of_tenant("u", "1"))
        cursor.execute("VACUUM ANALYZE django_jobs_outbox")
        with transaction.atomic(), connection.execute_wrapper(note):
            places = [{"buffer": "default", "room": 400, "after": "t0"}]
            claims = outbox().claim(token, limit=100, lease=30, places=places)
            assert len(claims) == (1 if held else 100)
            transaction.set_rollback(True)
        (claim,) = (s for s in statements if "RECURSIVE" in s[0])
        with transaction.atomic():
            cursor.execute("SET LOCAL jit = off")
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {claim[0]}", claim[1])
            plan = cursor.fetchone()[0][0]["Plan"]
            transaction.set_rollback(True)
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@postgres_only
@pytest.mark.parametrize("tenants", [1, 3, 700])
def test_a_claim_reads_as_much_of_a_large_buffer_as_of_a_small_one(tenants: int) -> None:
    """From tenant to tenant by the index; neither what waits nor what was published is walked."""
    small, large = (pages_read(count, tenants) for count in (6_000, 60_000))
    assert large < 1.5 * small + 50, (small, large)


@postgres_only
def test_a_claim_walks_past_no_large_group_that_is_held() -> None:
    small, large = (pages_read(count, 1, held=True) for count in (3_000, 30_000))
    assert large < 1.5 * small + 50, (small, large)


def test_jobs_are_counted_no_further_than_the_limit(jobs_alias: str, limit: Limit) -> None:
    limit(4)
    for _ in range(9):
        make(State.READY)
    make(State.READY, blocked=True, lane="x")
    make(State.DELAYED)
    make(State.READY, queue="other")
    depths.look(["default", "other"])
    known = depths.known()
    assert {queue: gauge.depth for queue, gauge in known.items()} == {"default": 4, "other": 1}
    assert [known[queue].waiting for queue in ("default", "other")] == [True, False]
    assert Job.objects.count() == 12


def test_a_direct_call_of_a_lane_over_the_limit_is_a_blocked_row_and_ends_the_older_run(
    jobs_alias: str, settings: Any
) -> None:
    """It holds its lane from now on, and gets its turn as room appears."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "MAX_READY": 2}
    older = enqueue(reindex, 1, "a")
    (run,) = jobs().claim("default", room=1, lease=60, worker="w")
    enqueue_many([noop.call(), noop.call()])
    depths.forget()
    newer = enqueue(reindex, 1, "b")
    bypassing = enqueue(reindex.using(bypass=True), 2, "c")
    assert newer.status == bypassing.status == "published"
    assert (row(newer.id).state, row(newer.id).blocked) == ("ready", True)
    assert not row(bypassing.id).blocked
    assert not jobs().still_held([run])
    assert row(older.id).superseded_by == newer.id
    drain()
    assert row(newer.id).state == "done"
