"""Every state and every move; the fence; what a repeat, an operator and a newer release may do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.db.models.functions import Now

import django_jobs
from django_jobs import get, states
from django_jobs.errors import JobNotFound, MoveRefused, NotCancellable, NotRetryable, UnknownValue
from django_jobs.ids import new_id, new_token
from django_jobs.models import Attempt, Job, Run
from django_jobs.outcomes import Failure
from django_jobs.states import LIVE, Move, State
from tests.rows.parties import columns, jobs, make, party, row, run_of, until_one_waits
from tests.waiting import until

BOOM = Failure("ValueError", "boom", "Traceback ...")


@dataclass(frozen=True)
class Walk:
    """One move to one of its targets. ``do`` reports whether it changed a row."""

    move: Move
    target: State
    do: Callable[[Job], object]

    def __str__(self) -> str:
        return f"{self.move.name} to {self.target}"


WALKS = (
    Walk(
        states.CLAIM,
        State.RUNNING,
        lambda job: jobs().claim("default", room=9, lease=30, worker="w2"),
    ),
    Walk(states.SUCCEED, State.DONE, lambda job: jobs().succeed([(run_of(job), '"yes"')])),
    Walk(states.RETRY, State.DELAYED, lambda job: jobs().retry(run_of(job), BOOM, 60)),
    Walk(states.RETRY, State.READY, lambda job: jobs().retry(run_of(job), BOOM, 0)),
    Walk(states.SUSPEND, State.SUSPENDED, lambda job: jobs().suspend(run_of(job), 60, "sleeps")),
    Walk(states.SHED, State.READY, lambda job: jobs().shed([run_of(job)])),
    Walk(states.BURY, State.DEAD, lambda job: jobs().bury(run_of(job), BOOM, "no", keep=True)),
    Walk(states.BURY, State.FAILED, lambda job: jobs().bury(run_of(job), BOOM, "no", keep=False)),
    Walk(states.LAPSE, State.READY, lambda job: jobs().lapse(limit=9, max_crashes=3)),
    Walk(states.LAPSE, State.DEAD, lambda job: jobs().lapse(limit=9, max_crashes=1)),
    Walk(states.WAKE, State.READY, lambda job: jobs().wake(limit=9)),
    Walk(
        states.CANCEL,
        State.CANCELLED,
        lambda job: jobs().cancel(job.id, tenant=None, by="ann", reason="why"),
    ),
    Walk(states.REQUEUE, State.READY, lambda job: jobs().requeue(job.id, force=True) or True),
)


def make_tempting(state: State) -> Job:
    """A row that only its state keeps from any move: due, leased by the run, its lease run out."""
    return make(
        state,
        lease=new_token(),
        worker="",
        lease_expires_at=Now() - timedelta(seconds=1),
        attempt=2,
    )


@pytest.mark.parametrize("walk", WALKS, ids=str)
def test_a_move_starts_from_its_sources_only_and_ends_in_its_target(
    jobs_alias: str, walk: Walk
) -> None:
    for state in State:
        job = make_tempting(state)
        before = columns(job.id)
        try:
            reported = bool(walk.do(job))
        except MoveRefused:
            reported = False
        if state in walk.move.sources:
            assert reported, state
            assert row(job.id).state == walk.target, state
        else:
            # A settle that finds its own token in its own target landed at an earlier try [d20].
            repeat = walk.move.fenced and state is walk.target and walk.move is not states.SHED
            assert reported == repeat, state
            assert columns(job.id) == before, state
            assert not Attempt.objects.using(jobs_alias).filter(job_id=job.id).exists(), state
        Job.objects.all().delete()


def test_every_move_to_every_target_is_walked() -> None:
    """SUPERSEDE is the one without a method yet: it comes to life with the lanes."""
    walked = {(walk.move.name, walk.target) for walk in WALKS}
    every = {(move.name, target) for move in states.MOVES for target in move.targets}
    assert every - walked == {("supersede", State.CANCELLED)}
    assert not walked - every


def test_a_suspended_and_a_delayed_job_that_are_not_due_stay_asleep(jobs_alias: str) -> None:
    for state in states.WAKE.sources:
        make(state, run_at=Now() + timedelta(hours=1))
    assert jobs().wake(limit=9) == []
    assert not jobs().filter(state=State.READY).exists()


def test_a_lease_that_still_holds_does_not_lapse_unless_its_worker_is_known_dead(
    jobs_alias: str,
) -> None:
    job = make(State.RUNNING, worker="gone")
    other = make(State.RUNNING, worker="alive")
    assert jobs().lapse(limit=9, max_crashes=3) == []
    assert [one.job_id for one in jobs().lapse(limit=9, max_crashes=3, worker="gone")] == [job.id]
    assert row(other.id).state == State.RUNNING


# --- the fence -----------------------------------------------------------------------------------

FENCED: dict[str, Callable[[Run], object]] = {
    "succeed": lambda run: jobs().succeed([(run, "1")]),
    "retry": lambda run: jobs().retry(run, BOOM, 60),
    "retry at once": lambda run: jobs().retry(run, BOOM, 0),
    "suspend": lambda run: jobs().suspend(run, 60, "sleeps"),
    "shed": lambda run: jobs().shed([run]),
    "bury": lambda run: jobs().bury(run, BOOM, "no", keep=True),
    "renew": lambda run: jobs().renew([run], 60)[0],
    "progress": lambda run: jobs().store_progress(run, "1"),
    "fence": lambda run: jobs().fence(run, 60, "1"),
}


@pytest.mark.parametrize("verb", FENCED)
def test_a_run_whose_lease_was_taken_over_changes_nothing(jobs_alias: str, verb: str) -> None:
    job = make(State.RUNNING)
    before = columns(job.id)
    assert not FENCED[verb](run_of(job, lease=new_token()))
    assert columns(job.id) == before
    assert not Attempt.objects.using(jobs_alias).exists()


@pytest.mark.parametrize("verb", FENCED)
def test_a_run_changes_nothing_once_its_job_was_cancelled_or_lapsed(
    jobs_alias: str, verb: str
) -> None:
    cancelled, lapsed, claimed_again = (make(State.RUNNING) for _ in range(3))
    runs = [run_of(job) for job in (cancelled, lapsed, claimed_again)]
    jobs().cancel(cancelled.id, tenant=None, by="", reason="")
    for job in (lapsed, claimed_again):
        jobs().filter(id=job.id).update(lease_expires_at=Now() - timedelta(seconds=1))
        assert jobs().lapse(limit=1, max_crashes=3)
    jobs().filter(id=lapsed.id).update(queue="elsewhere")
    assert len(jobs().claim("default", room=9, lease=60, worker="w1")) == 1
    before = [columns(run.id) for run in runs]
    attempts = Attempt.objects.using(jobs_alias).count()
    assert not any(FENCED[verb](run) for run in runs)
    assert [columns(run.id) for run in runs] == before
    assert Attempt.objects.using(jobs_alias).count() == attempts


def test_a_renewal_names_what_was_lost_and_keeps_the_rest(jobs_alias: str) -> None:
    held, taken, gone = make(State.RUNNING), make(State.RUNNING), make(State.DONE)
    runs = [run_of(held), run_of(taken, lease=new_token()), run_of(gone)]
    assert jobs().renew(runs, 600) == ({held.id}, {taken.id, gone.id})
    assert row(held.id).lease_expires_at > held.lease_expires_at  # type: ignore[operator]


def test_a_lease_that_ran_out_but_was_not_taken_is_renewed_and_settled(jobs_alias: str) -> None:
    """After an outage the holder goes on where nobody else has taken over [d22]."""
    job = make(State.RUNNING, lease_expires_at=Now() - timedelta(minutes=5))
    assert jobs().renew([run_of(job)], 60) == ({job.id}, set())
    assert jobs().succeed([(run_of(job), None)]) == {job.id}


# --- repeats after a lost reply [d20] -------------------------------------------------------------

SETTLES: dict[str, Callable[[Run], object]] = {
    "succeed": lambda run: run.id in jobs().succeed([(run, '"kept"')]),
    "retry": lambda run: jobs().retry(run, BOOM, 60),
    "retry at once": lambda run: jobs().retry(run, BOOM, 0),
    "suspend": lambda run: jobs().suspend(run, 60, "sleeps"),
    "bury": lambda run: jobs().bury(run, BOOM, "no", keep=True),
    "fail": lambda run: jobs().bury(run, BOOM, "no", keep=False),
}


@pytest.mark.parametrize("settle", SETTLES)
def test_a_settle_repeated_after_a_lost_reply_recognises_itself(
    jobs_alias: str, settle: str
) -> None:
    job = make(State.RUNNING)
    assert SETTLES[settle](run_of(job))
    after = columns(job.id)
    attempts = Attempt.objects.using(jobs_alias).count()
    assert after["lease"] == job.lease
    assert after["lease_expires_at"] is None
    assert SETTLES[settle](run_of(job))
    assert columns(job.id) == after
    assert Attempt.objects.using(jobs_alias).count() == attempts


def test_a_repeated_group_settles_the_rest_and_reports_all_that_landed(jobs_alias: str) -> None:
    first, second, stolen = (make(State.RUNNING) for _ in range(3))
    runs = [run_of(first), run_of(second), run_of(stolen, lease=new_token())]
    assert jobs().succeed([(runs[0], "1")]) == {first.id}
    assert jobs().succeed([(run, "2") for run in runs]) == {first.id, second.id}
    assert [row(job.id).result for job in (first, second, stolen)] == [1, 2, None]


@pytest.mark.parametrize("settle", SETTLES)
def test_a_repeat_after_a_requeue_in_between_is_a_loss(jobs_alias: str, settle: str) -> None:
    job = make(State.RUNNING)
    assert SETTLES[settle](run_of(job))
    if row(job.id).is_live:
        jobs().cancel(job.id, tenant=None, by="", reason="")
    jobs().requeue(job.id, force=True)
    assert not SETTLES[settle](run_of(job))
    assert row(job.id).state == State.READY


# --- what a move leaves ---------------------------------------------------------------------------


def test_an_attempt_is_given_back_never_below_zero(jobs_alias: str) -> None:
    for attempt, left in ((3, 2), (1, 0), (0, 0)):
        slept = make(State.RUNNING, attempt=attempt)
        handed_back = make(State.RUNNING, attempt=attempt)
        lost = make(State.RUNNING, attempt=attempt, lease_expires_at=Now() - timedelta(seconds=1))
        assert jobs().suspend(run_of(slept), 60, "")
        assert jobs().shed([run_of(handed_back)]) == 1
        assert len(jobs().lapse(limit=9, max_crashes=3)) == 1
        assert {row(job.id).attempt for job in (slept, handed_back, lost)} == {left}


def test_a_failed_attempt_stays_counted_and_is_recorded(jobs_alias: str) -> None:
    again, given_up = make(State.RUNNING, attempt=2), make(State.RUNNING, attempt=3)
    assert jobs().retry(run_of(again), BOOM, 60)
    assert jobs().bury(run_of(given_up), BOOM, "used up", keep=True)
    assert [row(job.id).attempt for job in (again, given_up)] == [2, 3]
    for job in (again, given_up):
        kept = Attempt.objects.using(jobs_alias).get(job_id=job.id)
        assert (kept.number, kept.error_class, kept.message) == (job.attempt, "ValueError", "boom")
        assert kept.worker == "w1"
        assert kept.started_at is not None and kept.started_at <= kept.ended_at


def test_a_handed_back_a_lapsed_and_a_requeued_job_keep_their_place_in_line(
    jobs_alias: str,
) -> None:
    shed, dead = make(State.RUNNING), make(State.DEAD)
    lapsed = make(State.RUNNING, lease_expires_at=Now() - timedelta(seconds=1))
    assert jobs().shed([run_of(shed)])
    assert jobs().lapse(limit=9, max_crashes=3)
    jobs().requeue(dead.id)
    for job in (shed, lapsed, dead):
        assert row(job.id).run_at == job.run_at
        assert row(job.id).state == State.READY


def test_a_retry_and_a_sleep_move_the_due_time(jobs_alias: str) -> None:
    again, asleep = make(State.RUNNING), make(State.RUNNING)
    jobs().retry(run_of(again), BOOM, 3600)
    jobs().suspend(run_of(asleep), 7200, "")
    hours = [(row(job.id).run_at - job.run_at).total_seconds() / 3600 for job in (again, asleep)]
    assert [round(passed, 1) for passed in hours] == [2.0, 3.0]


def test_three_sleeps_in_a_row_neither_use_attempts_nor_give_too_many_back(
    jobs_alias: str,
) -> None:
    job = make(State.READY)
    for _ in range(3):
        (run,) = jobs().claim("default", room=1, lease=60, worker="w")
        assert run.attempt == 1
        assert jobs().suspend(run, 0, "")
        until(lambda: jobs().wake(limit=1) == ["default"])  # Times have milliseconds on SQLite.
    assert row(job.id).attempt == 0


def test_a_job_whose_worker_is_lost_over_and_over_ends_dead_with_its_history(
    jobs_alias: str,
) -> None:
    job = make(State.READY)
    for crash in (1, 2, 3):
        suspect = crash == 3
        assert jobs().claim("default", room=9, lease=60, worker=f"w{crash}", suspects=suspect)
        (lapsed,) = jobs().lapse(limit=9, max_crashes=3, worker=f"w{crash}")
        assert lapsed.crashes == crash
    assert lapsed.state is State.DEAD
    assert row(job.id).state == State.DEAD
    assert row(job.id).reason
    lost = Attempt.objects.using(jobs_alias).filter(job_id=job.id)
    assert [one.worker for one in lost] == ["w1", "w2", "w3"]


# --- operators ------------------------------------------------------------------------------------


def test_a_requeued_job_starts_anew_and_keeps_its_history(jobs_alias: str) -> None:
    job = make(
        State.DEAD, attempt=3, crashes=2, lease=new_token(), worker="w1", reason="no", result=1
    )
    Attempt.objects.using(jobs_alias).create(job_id=job.id, number=3, error_class="E")
    jobs().requeue(job.id)
    after = row(job.id)
    assert (after.attempt, after.crashes, after.lease, after.worker) == (0, 0, None, "")
    assert (after.reason, after.result, after.finished_at) == ("", None, None)
    assert after.run_id == job.run_id
    assert Attempt.objects.using(jobs_alias).filter(job_id=job.id).count() == 1


def test_a_job_says_who_cancelled_it_and_who_ran_it_again_and_why(jobs_alias: str) -> None:
    job = make(State.READY)
    django_jobs.cancel(job.id, by="ann", reason="not now")
    shown = get(job.id)
    assert (shown.cancelled_by, shown.reason) == ("ann", "not now")
    django_jobs.retry(job.id, force=True, by="bob", reason="now")
    shown = get(job.id)
    assert (shown.cancelled_by, shown.retried_by, shown.retry_reason) == ("", "bob", "now")


@pytest.mark.parametrize("state", [*LIVE, State.DONE, State.CANCELLED], ids=str)
def test_a_requeue_unasked_takes_back_only_what_failed(jobs_alias: str, state: State) -> None:
    job = make(state)
    before = columns(job.id)
    with pytest.raises(NotRetryable, match=state.value):
        jobs().requeue(job.id)
    assert columns(job.id) == before


def test_a_requeue_is_refused_while_another_live_job_holds_the_key(jobs_alias: str) -> None:
    for state in LIVE:
        holder = make(state)
        dead = make(State.DEAD, idempotency_key=holder.idempotency_key)
        before = columns(dead.id)
        with pytest.raises(NotRetryable, match="holds its"):
            jobs().requeue(dead.id)
        assert columns(dead.id) == before
        with transaction.atomic(using=jobs_alias):
            with pytest.raises(NotRetryable):
                jobs().requeue(dead.id)
            assert row(holder.id).state == state  # The caller's transaction is still usable.
        stranger = make(State.DEAD, idempotency_key=holder.idempotency_key, tenant="other")
        jobs().requeue(stranger.id)


def test_a_requeue_waits_until_the_cancelled_body_has_ended(jobs_alias: str) -> None:
    job = make(State.RUNNING)
    assert jobs().cancel(job.id, tenant=None, by="ann", reason="stop") is State.RUNNING
    stopping = row(job.id)
    assert (stopping.lease, stopping.worker) == (None, "w1")
    assert stopping.lease_expires_at is not None
    with pytest.raises(NotRetryable, match="stopping"):
        jobs().requeue(job.id, force=True)
    assert jobs().body_ended(job.id, "another worker") == 0
    assert jobs().body_ended(job.id, "w1") == 1
    jobs().requeue(job.id, force=True)
    assert row(job.id).cancelled_by == ""


def test_a_stopping_job_whose_worker_is_gone_may_be_requeued_after_its_lease(
    jobs_alias: str,
) -> None:
    job = make(State.RUNNING)
    jobs().cancel(job.id, tenant=None, by="", reason="")
    jobs().filter(id=job.id).update(lease_expires_at=Now() - timedelta(seconds=1))
    jobs().requeue(job.id, force=True)
    assert row(job.id).state == State.READY


def test_a_cancelled_job_is_never_claimed_or_lapsed_and_says_who_and_why(jobs_alias: str) -> None:
    for state in LIVE:
        job = make(state, lease_expires_at=Now() - timedelta(seconds=1))
        assert jobs().cancel(job.id, tenant=None, by="ann", reason="why") is state
        after = row(job.id)
        assert (after.cancelled_by, after.reason) == ("ann", "why")
    assert jobs().claim("default", room=9, lease=60, worker="w") == []
    assert jobs().lapse(limit=9, max_crashes=3) == []
    assert jobs().wake(limit=9) == []


def test_operators_reach_their_own_tenant_only_and_unknown_ids_are_said_to_be_missing(
    jobs_alias: str,
) -> None:
    live, dead = make(State.READY, tenant="a"), make(State.DEAD, tenant="a")
    for tenant, live_id, dead_id in (("b", live.id, dead.id), (None, new_id(), new_id())):
        with pytest.raises(JobNotFound):
            jobs().cancel(live_id, tenant=tenant, by="", reason="")
        with pytest.raises(JobNotFound):
            jobs().requeue(dead_id, tenant=tenant)
    assert jobs().cancel(live.id, tenant="a", by="", reason="") is State.READY
    jobs().requeue(dead.id, tenant="a")


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_a_cancel_and_a_settle_that_meet_agree_on_one_end() -> None:
    """The canceller waits for the settle's row lock, and then sees what it committed."""
    job = make(State.RUNNING)
    with party() as settler:
        block = transaction.atomic()
        settler.do(block.__enter__)
        assert settler.do(jobs().succeed, [(run_of(job), None)]) == {job.id}
        with party() as operator:
            cancelling = operator.start(
                lambda: jobs().cancel(job.id, tenant=None, by="", reason="")
            )
            until_one_waits()
            settler.do(block.__exit__, None, None, None)
            with pytest.raises(NotCancellable, match="done"):
                cancelling.result(30)
    assert row(job.id).state == State.DONE


# --- a state of a newer release [d31] -------------------------------------------------------------


@contextmanager
def without_the_state_constraint(alias: str) -> Any:
    """Rolls everything back at its end, the constraint included."""
    postgres = connections[alias].vendor == "postgresql"
    with connections[alias].cursor() as cursor:
        if not postgres:
            cursor.execute("PRAGMA ignore_check_constraints = ON")
        try:
            with transaction.atomic(using=alias):
                if postgres:
                    cursor.execute(
                        "ALTER TABLE django_jobs_job DROP CONSTRAINT django_jobs_job_state"
                    )
                yield
                transaction.set_rollback(True, using=alias)
        finally:
            if not postgres:
                cursor.execute("PRAGMA ignore_check_constraints = OFF")


def test_a_state_of_a_newer_release_refuses_its_own_row_only(jobs_alias: str) -> None:
    with without_the_state_constraint(jobs_alias):
        strange, known, dead = make(State.READY), make(State.READY), make(State.DEAD)
        jobs().filter(id=strange.id).update(state="paused")
        for ask in (
            lambda: django_jobs.get(strange.id),
            lambda: django_jobs.cancel(strange.id),
            lambda: django_jobs.retry(strange.id, force=True),
            lambda: row(strange.id).is_live,
        ):
            with pytest.raises(UnknownValue) as refused:
                ask()
            assert (refused.value.table, refused.value.column) == ("django_jobs_job", "state")
            assert refused.value.value == "paused"
            assert refused.value.known == tuple(State)
        assert django_jobs.get(known.id).state == "ready"
        assert [run.id for run in jobs().claim("default", room=9, lease=9, worker="w")] == [
            known.id
        ]
        assert django_jobs.cancel(known.id) == "running"
        django_jobs.retry(dead.id)
        assert row(strange.id).state == "paused"


def test_the_database_refuses_a_state_that_nobody_knows(jobs_alias: str) -> None:
    job = make(State.READY)
    with pytest.raises(IntegrityError), transaction.atomic(using=jobs_alias):
        jobs().filter(id=job.id).update(state="paused")
