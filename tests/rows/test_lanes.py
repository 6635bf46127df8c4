"""Lanes in the rows: of all jobs published in a lane, the one published last runs to its end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from uuid import UUID

import pytest
from django.db import connections, transaction
from psycopg import IsolationLevel

import django_jobs
from django_jobs import PER_CALL, current_job, enqueue, enqueue_many, get, job, retry
from django_jobs.errors import DeclarationError, DuplicateJob, LaneMovedOn
from django_jobs.loops import relay
from django_jobs.models import Job, Lane, LaneKey, Outbox, picking, publishing
from django_jobs.models.lane import lock_and_draw
from django_jobs.outcomes import Superseded
from django_jobs.signals import job_superseded
from django_jobs.states import LIVE, State
from django_jobs.testing import advance, drain
from tests.app.jobs import edited, patient, reindex, sometimes
from tests.rows.parties import at_once, columns, jobs, make, party, row, run_of, until_one_waits

postgres_only = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture(params=["direct", "staged"])
def how(request: pytest.FixtureRequest) -> str:
    """Outside a transaction, or in one and through the relay."""
    return str(request.param)


def publish(how: str, alias: str, *calls: Any) -> list[UUID]:
    """The ids of ``calls``, published one after the other."""
    ids = []
    for call in calls:
        if how == "direct":
            ids.append(enqueue_many([call])[0].id)
        else:
            ids += stage(alias, call)
            relay_all(alias)
    return ids


def stage(alias: str, *calls: Any) -> list[UUID]:
    with transaction.atomic(using=alias):
        return [one.id for one in enqueue_many(calls)]


def relay_all(alias: str) -> None:
    while relay.tick(alias):
        pass


def claim(**options: Any) -> Any:
    (run,) = jobs().claim("default", room=1, lease=60, worker="w1", **options)
    return run


def head(document: int = 1, name: str = reindex.name) -> Lane:
    return Lane.objects.using(jobs().db).get(name=name, lane=str(document))


# --- the newest wins -----------------------------------------------------------------------------


def test_a_newer_job_supersedes_one_that_waits(jobs_alias: str, how: str) -> None:
    """R1."""
    older, newer = publish(how, jobs_alias, reindex.call(1, "a"), reindex.call(1, "b"))
    assert row(older).state == State.CANCELLED
    assert row(older).superseded_by == newer
    assert row(older).reason == "superseded"
    assert row(older).finished_at is not None
    assert [ran.outcome.result for ran in drain()] == ['"b"']
    assert row(newer).state == State.DONE


@pytest.mark.parametrize("state", [state for state in LIVE if state is not State.RUNNING])
def test_whatever_waits_is_superseded(jobs_alias: str, how: str, state: State) -> None:
    older = make(state, name=reindex.name, lane="1", lane_token=0, blocked=state is State.READY)
    (newer,) = publish(how, jobs_alias, reindex.call(1))
    assert row(older.id).state == State.CANCELLED
    assert row(older.id).superseded_by == newer
    assert not row(older.id).blocked


def test_a_newer_job_ends_one_that_runs_and_its_settle_says_so(jobs_alias: str, how: str) -> None:
    """R2, 68, 71: it is no failure, whatever the body returned, and it is not run again."""
    (older,) = publish(how, jobs_alias, reindex.call(1, "a"))
    run = claim()
    (newer,) = publish(how, jobs_alias, reindex.call(1, "b"))
    stopping = row(older)
    assert (stopping.state, stopping.lease, stopping.worker) == (State.CANCELLED, None, "w1")
    assert stopping.lease_expires_at is not None, "it is shown as stopping until its body ended"
    assert jobs().succeed([(run, '"a"')]) == set()
    assert jobs().superseded_by(run) == newer
    assert not jobs().still_held([run])
    assert row(older).result is None


def test_lanes_of_two_jobs_two_tenants_or_two_keys_never_meet(jobs_alias: str, how: str) -> None:
    """S19, 1, 14, 16: and no lane at all supersedes nothing."""
    calls = [
        reindex.call(1),
        reindex.call(2),
        patient.call(1),
        sometimes.call(1, "a"),
        sometimes.call(1, "b"),
        sometimes.call(0, "a"),
        sometimes.call(0, "a"),
    ]
    ids = publish(how, jobs_alias, *calls)
    assert [row(id_).state for id_ in ids] == [State.READY] * len(ids)
    assert [row(id_).lane for id_ in ids] == ["1", "2", "1", "d1", "d1", None, None]


def test_lanes_with_odd_texts_are_told_apart(jobs_alias: str) -> None:
    """14, 15."""

    @job(lane="{key}", name="tests.odd")
    def odd(key: str) -> None: ...

    django_jobs.definitions.allow(odd.module)
    texts = ["a:b", "a", "a b", "a\nb", "a\u0301", "\u00e1", "{a}", "a" * 512, "a" * 511 + "b"]
    ids = publish("direct", jobs_alias, *(odd.call(text) for text in texts))
    assert {row(id_).state for id_ in ids} == {State.READY}
    assert Lane.objects.using(jobs().db).count() == len(texts)
    assert len({LaneKey("n", "", text).stripe for text in texts}) > 1


def test_in_one_batch_each_gives_way_to_the_next_that_was_inserted(jobs_alias: str) -> None:
    """d2: twenty edits in a row, staged by twenty transactions, published in one."""
    ids = [stage(jobs_alias, reindex.call(1, str(n)))[0] for n in range(20)]
    relay_all(jobs_alias)
    assert [row(older).superseded_by for older in ids[:-1]] == ids[1:]
    assert row(ids[-1]).state == State.READY
    tokens = [row(id_).lane_token for id_ in ids]
    assert tokens == sorted(tokens)
    assert (head().last_job, head().last_token) == (ids[-1], tokens[-1])


def test_many_lanes_in_one_call_each_keep_their_last(jobs_alias: str) -> None:
    """d6: a lock for each lane would fill the server's lock table."""
    calls = [reindex.call(n % 1000, str(n)) for n in range(3000)]
    ids = [one.id for one in enqueue_many(calls)]
    relay_all(jobs_alias)
    assert set(jobs().filter(state="ready").values_list("id", flat=True)) == set(ids[-1000:])


def test_the_newest_is_the_one_published_last_whatever_its_id_or_its_clock(
    jobs_alias: str,
) -> None:
    """S22, 48 to 50: ids and host clocks say nothing."""
    older = make(State.READY, name=reindex.name, lane="1", lane_token=0, id=UUID(int=2**128 - 1))
    (newer,) = publish("direct", jobs_alias, reindex.call(1))
    assert newer < older.id
    assert row(older.id).superseded_by == newer


def test_a_delayed_newer_job_supersedes_at_once(jobs_alias: str, how: str) -> None:
    older, newer = publish(
        how, jobs_alias, reindex.call(1, "a"), reindex.using(delay=3600).call(1, "b")
    )
    assert row(older).superseded_by == newer
    assert row(newer).state == State.DELAYED


def test_a_failed_or_cancelled_newest_resurrects_nothing(jobs_alias: str) -> None:
    """R43."""
    older, newer = publish("direct", jobs_alias, reindex.call(1, "a"), reindex.call(1, "b"))
    django_jobs.cancel(newer)
    assert row(older).state == State.CANCELLED
    assert drain() == []


def test_superseding_is_told_after_the_commit(jobs_alias: str, how: str) -> None:
    """71."""
    told: list[dict[str, Any]] = []

    def hear(sender: str, **values: Any) -> None:
        seen = row(values["job_id"]).state
        told.append({"sender": sender, "seen": seen, **values})

    job_superseded.connect(hear)
    try:
        publish(how, jobs_alias, reindex.call(1, "a"))
        claim()
        ids = publish(how, jobs_alias, reindex.call(1, "b"), reindex.call(1, "c"))
    finally:
        job_superseded.disconnect(hear)
    assert [one["ran"] for one in told] == [True, False]
    assert [one["superseded_by"] for one in told] == ids
    assert {(one["sender"], one["seen"]) for one in told} == {(reindex.name, State.CANCELLED)}


def test_a_lane_whose_runs_never_end_is_counted_and_named(
    jobs_alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R44: the remedy is in the line."""
    publish("direct", jobs_alias, reindex.call(1))
    for _ in range(5):
        claim()
        publish("direct", jobs_alias, reindex.call(1))
    assert head().supersessions == 5
    assert [r.message for r in caplog.records if "on_start" in r.message]
    drain()
    publish("direct", jobs_alias, reindex.call(1))
    assert head().supersessions == 0


# --- what was staged earlier is displaced --------------------------------------------------------


def test_what_was_staged_earlier_is_displaced_by_a_direct_publish(jobs_alias: str) -> None:
    """S15, 125, 131, R27, R28, R34: free, claimed, in back-off or quarantined."""
    staged = [stage(jobs_alias, reindex.call(1, str(n)))[0] for n in range(4)]
    other = stage(jobs_alias, reindex.call(2))
    entries = publishing.outbox(jobs_alias)
    entries.filter(id=staged[2]).update(attempts=1, next_try_at="2100-01-01T00:00:00Z")
    entries.filter(id=staged[3]).update(outcome="quarantined")
    token = UUID(int=7)
    claimed = {seq: one.lane for seq, one in entries.claim(token, limit=1, lease=60).items()}
    (newest,) = publish("direct", jobs_alias, reindex.call(1, "newest"))
    assert [entries.get(id=id_).outcome for id_ in staged] == ["displaced"] * 4
    assert [entries.get(id=id_).job_id for id_ in staged] == [newest] * 4
    assert publishing.publish_claimed(jobs_alias, jobs_alias, token, claimed).outcomes == {}
    relay_all(jobs_alias)
    assert set(jobs().values_list("id", flat=True)) == {newest, *other}
    assert get(staged[0]).state == "displaced"


def test_an_entry_displaces_what_was_staged_before_it_and_nothing_after(jobs_alias: str) -> None:
    """d9: order is that of the sequence the database draws."""
    first, second, third = (stage(jobs_alias, reindex.call(1, t))[0] for t in "abc")
    entries = publishing.outbox(jobs_alias)
    seq = entries.get(id=second).seq
    token = UUID(int=7)
    entries.filter(seq=seq).update(claimed_by=token, claimed_until="2100-01-01T00:00:00Z")
    publishing.publish_claimed(jobs_alias, jobs_alias, token, {seq: LaneKey(reindex.name, "", "1")})
    assert entries.get(id=first).outcome == "displaced"
    assert entries.get(id=first).job_id == second
    assert entries.get(id=third).outcome is None
    relay_all(jobs_alias)
    assert row(second).superseded_by == third


def test_what_stands_between_two_entries_of_a_claim_gives_way_to_the_second(
    jobs_alias: str,
) -> None:
    first, between, last = (stage(jobs_alias, reindex.call(1, text))[0] for text in "abc")
    entries = publishing.outbox(jobs_alias)
    entries.filter(id=between).update(next_try_at="2100-01-01T00:00:00Z")
    relay_all(jobs_alias)
    assert entries.get(id=between).job_id == last
    assert row(first).superseded_by == last


@postgres_only
def test_an_entry_of_a_transaction_that_commits_late_wins() -> None:
    """d9, R51, R53: it looks older, but its data is the newest."""
    with party() as other:
        other.do(transaction.set_autocommit, False)
        late = other.do(lambda: enqueue(reindex, 1, "late").id)
        (early,) = publish("staged", "default", reindex.call(1, "early"))
        assert row(early).state == State.READY
        other.do(transaction.commit)
        other.do(transaction.set_autocommit, True)
    relay_all("default")
    assert row(early).superseded_by == late
    assert row(late).lane_token > row(early).lane_token


def test_a_rolled_back_enqueue_changes_nothing(jobs_alias: str) -> None:
    """R49, I8: the run that it would have superseded goes on."""
    (older,) = publish("direct", jobs_alias, reindex.call(1, "a"))
    run = claim()
    before = columns(older)
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=jobs_alias):
        enqueue(reindex, 1, "b")
        raise ZeroDivisionError
    relay_all(jobs_alias)
    assert columns(older) == before
    assert Outbox.objects.using(jobs_alias).count() == 0
    assert jobs().succeed([(run, None)]) == {older}


def test_a_publish_that_fails_changes_nothing(jobs_alias: str) -> None:
    """S4, R5 to R9, 78, 79: no phantom holder, the prior job runs."""
    (older,) = publish("direct", jobs_alias, reindex.call(1, "a"))
    before = columns(older)
    bad = reindex.call(1, "b")
    with pytest.raises(RuntimeError), transaction.atomic(using=jobs_alias):
        (key,) = lock_and_draw(jobs_alias, [LaneKey(reindex.name, "", "1")]) and ["1"]
        publishing.publish_now(jobs_alias, _entries([bad]))
        assert row(older).state == State.CANCELLED
        raise RuntimeError(key)
    assert columns(older) == before
    assert [ran.outcome.result for ran in drain()] == ['"a"']


def _entries(calls: Any) -> list[Any]:
    from django_jobs.operations import enqueueing

    return enqueueing._entries([call.request() for call in calls], None)


# --- keys inside a lane --------------------------------------------------------------------------


def test_a_key_of_a_lane_job_is_answered_by_one_that_was_never_claimed(
    jobs_alias: str, how: str
) -> None:
    """d1."""
    first, again = publish(how, jobs_alias, edited.call(1, "e"), edited.call(1, "e"))
    assert get(again).job_id == first
    assert row(first).state == State.READY


def test_a_claimed_holder_of_the_key_is_superseded(jobs_alias: str, how: str) -> None:
    """d1: what it read may be older than this event."""
    (first,) = publish(how, jobs_alias, edited.call(1, "e"))
    claim()
    (again,) = publish(how, jobs_alias, edited.call(1, "e"))
    assert row(first).superseded_by == again
    assert row(again).state == State.READY


def test_a_staged_entry_of_a_lane_is_never_answered_before_it_commits(jobs_alias: str) -> None:
    """A holder could run to its end on old data before this transaction commits."""
    publish("direct", jobs_alias, edited.call(1, "e"))
    with transaction.atomic(using=jobs_alias):
        asked = enqueue(edited, 1, "e")
        assert asked.status == "staged"


def test_a_strict_call_in_a_lane_is_refused_only_by_a_job_that_would_answer_it(
    jobs_alias: str, how: str
) -> None:
    strict = edited.using(on_conflict="error")
    publish(how, jobs_alias, edited.call(1, "e"))
    with pytest.raises(DuplicateJob):
        publish(how, jobs_alias, strict.call(1, "e"))
    claim()
    (newer,) = publish(how, jobs_alias, strict.call(1, "e"))
    assert row(newer).state == State.READY


def test_a_deduplicated_entry_displaces_nothing_and_its_lane_does_not_change(
    jobs_alias: str,
) -> None:
    """d2."""
    (first,) = publish("direct", jobs_alias, edited.call(1, "e"))
    before, lane = columns(first), head(1, edited.name).last_token
    staged = stage(jobs_alias, edited.call(1, "x"))[0]
    token = UUID(int=7)
    entries = publishing.outbox(jobs_alias)
    entries.filter(id=staged).update(claimed_by=token, claimed_until="2100-01-01T00:00:00Z")
    publish("direct", jobs_alias, edited.call(1, "e"))
    assert columns(first) == before
    assert head(1, edited.name).last_token == lane
    assert entries.get(id=staged).outcome is None


def test_keys_of_one_batch_are_looked_at_in_staged_order(jobs_alias: str) -> None:
    """d2: the second supersedes J1 with the first, and so finds its key free."""
    (holder,) = publish("direct", jobs_alias, edited.call(1, "k1"))
    second = stage(jobs_alias, edited.call(1, "k2"))[0]
    third = stage(jobs_alias, edited.call(1, "k1"))[0]
    relay_all(jobs_alias)
    assert row(holder).superseded_by == second
    assert row(second).superseded_by == third
    assert row(third).state == State.READY


# --- two publishers, two isolation levels --------------------------------------------------------


@postgres_only
def test_publishers_of_one_lane_leave_one_live_job() -> None:
    """R4, 49, d3: the last of them, whichever that is."""
    for _ in range(5):
        jobs().delete()
        at_once(*[lambda n=n: enqueue(reindex, 1, str(n)) for n in range(4)])
        live = jobs().filter(state__in=LIVE)
        assert live.count() == 1
        newest = jobs().order_by("-lane_token").first()
        assert live.get().id == newest.id == head().last_job


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
@postgres_only
def test_a_connection_of_another_isolation_level_publishes_all_the_same(
    level: IsolationLevel,
) -> None:
    """d3: a snapshot that is older than the lock would leave two live jobs."""
    with party() as other:
        other.do(configure, level)
        holder = transaction.atomic(using="default")
        with holder:
            lock_and_draw("default", [LaneKey(reindex.name, "", "1")])
            waiting = other.start(publish_once, reindex.call(1, "later"))
            until_one_waits()
            publishing.publish_now("default", _entries([reindex.call(1, "earlier")]))
        waiting.result(30)
    assert jobs().filter(state__in=LIVE).get().payload["text"] == "later"


def publish_once(*calls: Any) -> None:
    """One transaction, not tried again after a deadlock or a serialization error."""
    with picking.own_transaction("default"):
        publishing.publish_now("default", _entries(calls))


def configure(level: IsolationLevel) -> None:
    """As a project does in the OPTIONS of its database; this thread's connection only."""
    connection = connections["default"]
    connection.close()
    options = {**connection.settings_dict["OPTIONS"], "isolation_level": level}
    connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}
    connection.connect()
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("SHOW transaction_isolation")
        assert cursor.fetchone() == (level.name.lower().replace("_", " "),)


@postgres_only
def test_lanes_that_share_stripes_are_published_without_a_deadlock() -> None:
    """d5, d6: locks are taken by the integer, not by the text."""

    def publish_some(step: int) -> None:
        for _ in range(15):
            publish_once(*[reindex.call(n) for n in range(200)[::step]])

    at_once(*[lambda s=s: publish_some(s) for s in (1, -1, 1, -1)])
    live = jobs().filter(state__in=LIVE)
    assert live.count() == len(set(live.values_list("lane", flat=True)))


@postgres_only
def test_a_lane_that_is_held_for_long_holds_up_only_its_own_entries() -> None:
    """d23: the relay waits a second, releases that lane's entries and publishes the rest."""
    held = stage("default", reindex.call(1))[0]
    free = stage("default", reindex.call(2))[0]
    with party() as other, transaction.atomic():
        lock_and_draw("default", [LaneKey(reindex.name, "", "1")])
        other.do(relay.tick, "default")
        assert other.do(lambda: jobs().filter(id=free).exists())
        entry = Outbox.objects.get(id=held)
        assert (entry.outcome, entry.claimed_by, entry.attempts) == (None, None, 0)
    relay_all("default")
    assert row(held).state == State.READY


# --- runs and retries ----------------------------------------------------------------------------


def test_a_superseded_run_of_a_drain_has_its_own_outcome(jobs_alias: str) -> None:
    """71: neither a failure nor a retry."""

    @job(lane="{n}", name="tests.replaces_itself")
    def replaces_itself(n: int, depth: int = 0) -> None:
        if depth == 0:
            enqueue(replaces_itself, n, 1)
            raise ValueError("an abort-like error")

    django_jobs.definitions.allow(replaces_itself.module)
    (first,) = publish("direct", jobs_alias, replaces_itself.call(1))
    ran = drain()
    assert [type(one.outcome).__name__ for one in ran] == ["Superseded", "Succeeded"]
    assert row(first).state == State.CANCELLED
    assert row(first).superseded_by == ran[1].job_id


def test_an_operators_retry_of_the_newest_is_a_publish(jobs_alias: str) -> None:
    (only,) = publish("direct", jobs_alias, reindex.call(1))
    jobs().filter(id=only).update(state="dead", finished_at="2024-01-01T00:00:00Z")
    before = row(only).lane_token
    retry(only)
    assert row(only).state == State.READY
    assert row(only).lane_token > before
    assert head().last_token == row(only).lane_token


def test_a_retry_behind_the_lane_is_refused_and_names_the_newer(jobs_alias: str) -> None:
    """d7: stale data would win."""
    (older,) = publish("direct", jobs_alias, reindex.call(1, "a"))
    jobs().filter(id=older).update(state="dead", finished_at="2024-01-01T00:00:00Z")
    (newer,) = publish("direct", jobs_alias, reindex.call(1, "b"))
    drain()
    jobs().filter(id=newer).delete()  # History is pruned; the lane remembers.
    with pytest.raises(LaneMovedOn, match=str(newer)) as refused:
        retry(older)
    assert refused.value.newer == newer
    assert row(older).state == State.DEAD


def test_as_newest_supersedes_what_is_live(jobs_alias: str) -> None:
    (older,) = publish("direct", jobs_alias, reindex.call(1, "a"))
    jobs().filter(id=older).update(state="dead", finished_at="2024-01-01T00:00:00Z")
    (newer,) = publish("direct", jobs_alias, reindex.call(1, "b"))
    retry(older, as_newest=True)
    assert row(newer).superseded_by == older
    assert row(older).state == State.READY
    assert row(older).superseded_by is None
    with pytest.raises(LaneMovedOn):
        retry(newer, force=True)


@postgres_only
def test_a_retry_and_a_publish_of_one_lane_leave_one_live_job() -> None:
    """d7: without the stripe both end ready."""
    for _ in range(5):
        jobs().delete()
        (older,) = publish("direct", "default", reindex.call(1, "a"))
        jobs().filter(id=older).update(state="dead", finished_at="2024-01-01T00:00:00Z")

        def again(job_id: UUID = older) -> object:
            try:
                return retry(job_id)
            except LaneMovedOn as refused:
                return refused

        at_once(again, lambda: enqueue(reindex, 1, "b"))
        live = jobs().filter(state__in=LIVE).get()
        assert live.id == head().last_job


# --- on_start ------------------------------------------------------------------------------------


def test_on_start_spares_what_runs_until_the_newest_is_about_to_start(jobs_alias: str) -> None:
    (older,) = publish("direct", jobs_alias, patient.call(1, "a"))
    run = claim()
    waiting, newest = publish("direct", jobs_alias, patient.call(1, "b"), patient.call(1, "c"))
    assert row(older).state == State.RUNNING
    assert jobs().still_held([run]) == {older}
    assert row(waiting).superseded_by == newest
    ran = drain()
    assert [one.outcome.result for one in ran] == ['"c"']
    assert row(older).state == State.CANCELLED
    assert row(older).superseded_by == newest


def test_a_spared_run_that_ends_well_is_done(jobs_alias: str) -> None:
    (older,) = publish("direct", jobs_alias, patient.call(1, "a"))
    run = claim()
    publish("direct", jobs_alias, patient.call(1, "b"))
    assert jobs().succeed([(run, None)]) == {older}
    assert row(older).state == State.DONE


@pytest.mark.parametrize("how_it_ends", ["retry", "suspend", "shed", "lapse"])
def test_a_spared_run_that_would_run_again_ends_superseded(
    jobs_alias: str, how_it_ends: str
) -> None:
    (older,) = publish("direct", jobs_alias, patient.call(1, "a"))
    run = claim()
    (newer,) = publish("direct", jobs_alias, patient.call(1, "b"))
    failure = django_jobs.outcomes.Failure("E", "m", "")
    match how_it_ends:
        case "retry":
            assert not jobs().retry(run, failure, 5.0)
        case "suspend":
            assert not jobs().suspend(run, 5.0, "why")
        case "shed":
            assert jobs().shed([run]) == 0
        case "lapse":
            (lapsed,) = jobs().lapse(limit=9, max_crashes=3, worker="w1")
            assert lapsed.state is State.CANCELLED
    assert row(older).state == State.CANCELLED
    assert row(older).superseded_by == newer
    assert [one.job_id for one in drain()] == [newer]


# --- declaring -----------------------------------------------------------------------------------


def test_a_key_made_of_the_lanes_own_arguments_is_refused() -> None:
    """d1: it would answer the newest data with the older job."""
    with pytest.raises(DeclarationError, match="Drop idempotency_key"):

        @job(lane="{document}", idempotency_key="index:{document}", name="tests.index_in_lanes")
        def index(document: int, event: str) -> None: ...


def test_a_lane_job_needs_no_key_and_may_say_so() -> None:
    @job(lane="{document}", idempotency_key=PER_CALL, name="tests.index_in_lanes")
    def index(document: int) -> None: ...

    assert index.key is None


@pytest.mark.parametrize("value", ["later", None, True])
def test_supersede_running_is_one_of_two_words(value: Any) -> None:
    with pytest.raises(DeclarationError, match="on_start"):

        @job(lane="{document}", supersede_running=value, name="tests.index_in_lanes")
        def index(document: int) -> None: ...


def test_supersede_running_without_a_lane_is_refused() -> None:
    with pytest.raises(DeclarationError, match="without a lane"):

        @job(idempotency_key=PER_CALL, supersede_running="on_start", name="tests.index_in_lanes")
        def index(document: int) -> None: ...


@pytest.mark.parametrize("text", ["", "a\x00b", "\ud800", "x" * 513])
def test_a_lane_that_cannot_be_stored_is_refused_before_any_write(
    jobs_alias: str, text: str
) -> None:
    """16, 17."""

    @job(lane=lambda key: key, name="tests.bad_lane")
    def bad_lane(key: str) -> None: ...

    django_jobs.definitions.allow(bad_lane.module)
    with pytest.raises(django_jobs.errors.EnqueueError, match=r"lane|text|NUL"):
        enqueue(bad_lane, text)
    assert jobs().count() == 0


def test_the_stored_lane_counts_not_what_the_function_would_say_now(jobs_alias: str) -> None:
    """18."""
    answers = iter(["one", "two", "three"])

    @job(lane=lambda n: next(answers), name="tests.fickle")
    def fickle(n: int) -> None: ...

    django_jobs.definitions.allow(fickle.module)
    first, second = publish("staged", jobs_alias, fickle.call(1), fickle.call(1))
    assert [row(first).lane, row(second).lane] == ["one", "two"]
    drain()
    assert {row(first).state, row(second).state} == {State.DONE}


def test_the_outcome_of_a_superseded_run_names_the_newer(jobs_alias: str) -> None:
    from django_jobs.leases import LeaseBook
    from django_jobs.loops.settler import Settler
    from django_jobs.outcomes import Succeeded
    from django_jobs.signals import job_ended

    heard: list[Any] = []

    def hear(outcome: Any, **_: Any) -> None:
        heard.append(outcome)

    publish("direct", jobs_alias, reindex.call(1, "a"))
    leases = LeaseBook(60)
    settler = Settler(leases)
    (held,) = leases.add([claim()])
    (newer,) = publish("direct", jobs_alias, reindex.call(1, "b"))
    job_ended.connect(hear)
    try:
        settler.put(held, Succeeded('"a"'))
        settler.tick()
    finally:
        job_ended.disconnect(hear)
    assert heard == [Superseded(newer)]
    assert row(held.run.id).worker == ""


def test_run_of_carries_its_lane(jobs_alias: str) -> None:
    (one,) = publish("direct", jobs_alias, reindex.call(1))
    run = claim()
    assert (run.lane, run.lane_token) == ("1", row(one).lane_token)
    assert run_of(Job.objects.get(id=one)).lane == "1"


# --- what a run may say ---------------------------------------------------------------------------


@job(lane="{n}", name="tests.says")
def says(n: int, how: str = "") -> str:
    assert not current_job().cancelled.is_set()
    if how == "fails":
        raise ValueError("its own")
    if how == "looks cancelled":
        raise asyncio.CancelledError("its own, nobody superseded it")
    if how == "swallows":
        enqueue(says, n)
        with contextlib.suppress(BaseException):
            current_job().cancelled.set()
            current_job().check()
    return how


def says_run(how: str) -> Any:
    django_jobs.definitions.allow(says.module)
    publish("direct", jobs().db, says.call(1, how))
    return drain()[0]


def test_a_normal_run_is_told_nothing_and_ends_as_any_job(jobs_alias: str) -> None:
    """63, 65."""
    assert says_run("well").outcome.result == '"well"'


def test_a_runs_own_error_is_its_own_whatever_it_looks_like(jobs_alias: str) -> None:
    """66, 67."""
    assert says_run("fails").error == "ValueError: its own"
    jobs().delete()
    assert "CancelledError" in says_run("looks cancelled").error


def test_a_swallowed_interruption_still_ends_superseded(jobs_alias: str) -> None:
    """68."""
    (ran, newer) = says_run("swallows"), jobs().order_by("-lane_token").first()
    assert ran.outcome == Superseded(newer.id)
    assert newer.state == State.DONE


def test_a_job_that_ended_before_the_newer_one_came_stays_done(jobs_alias: str) -> None:
    """70, 75: the newer run follows it."""
    older = says_run("well").job_id
    (newer,) = publish("direct", jobs_alias, says.call(1))
    assert row(older).state == State.DONE
    assert row(older).superseded_by is None
    assert row(newer).state == State.READY


def test_a_job_that_is_superseded_while_it_backs_off_never_runs_again(jobs_alias: str) -> None:
    """72, R39."""
    (older,) = publish("direct", jobs_alias, reindex.call(1, "a"))
    run = claim()
    assert jobs().retry(run, django_jobs.outcomes.Failure("E", "m", ""), 60.0)
    publish("direct", jobs_alias, reindex.call(1, "b"))
    advance(120)
    assert [ran.outcome.result for ran in drain()] == ['"b"']
    assert row(older).state == State.CANCELLED


@postgres_only
def test_a_stale_run_cannot_commit_through_the_fence() -> None:
    """69, R3, R42: published within the block, and told at its last statement."""
    from tests.app.models import Account

    @job(lane="{n}", name="tests.writes")
    def writes(n: int, depth: int = 0) -> None:
        if depth:
            return
        with current_job().atomic():
            Account.objects.create(name="stale", balance=1)
            with party() as editor:
                editor.do(lambda: enqueue(writes, n, 1))

    django_jobs.definitions.allow(writes.module)
    (older,) = publish("direct", "default", writes.call(1))
    ran = drain()
    assert not Account.objects.filter(name="stale").exists()
    assert ran[0].outcome == Superseded(ran[1].job_id)
    assert row(older).state == State.CANCELLED


def test_savepoints_decide_about_lanes_too(jobs_alias: str) -> None:
    """94: what an inner block staged and took back never was in the lane."""
    (older,) = publish("direct", jobs_alias, reindex.call(1, "a"))
    with transaction.atomic(using=jobs_alias):
        with contextlib.suppress(ZeroDivisionError), transaction.atomic(using=jobs_alias):
            enqueue(reindex, 1, "inner")
            raise ZeroDivisionError
        kept = enqueue(reindex, 2, "outer").id
    relay_all(jobs_alias)
    assert row(older).state == State.READY
    assert row(kept).state == State.READY


def test_two_edits_in_one_transaction_end_with_the_second(jobs_alias: str) -> None:
    """95."""
    first, second = stage(jobs_alias, reindex.call(1, "a"), reindex.call(1, "b"))
    relay_all(jobs_alias)
    assert row(first).superseded_by == second
    assert [ran.outcome.result for ran in drain()] == ['"b"']
