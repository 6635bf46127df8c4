"""The fence: a transaction of a run that is no longer its job's does not commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connections, transaction
from django.db.models.functions import Now

from django_jobs import PER_CALL, current_job, enqueue, get, job
from django_jobs.current import CurrentJob, running
from django_jobs.errors import (
    AtomicNeedsOneDatabase,
    DeclarationError,
    FenceRefused,
    LeaseLost,
    Superseded,
)
from django_jobs.ids import new_id, new_token
from django_jobs.models import Job, OwnRows
from django_jobs.states import State
from django_jobs.testing import drain
from tests.app.jobs import transfers
from tests.app.models import Account
from tests.rows.parties import jobs, make, party, row, run_of

IN_DEFAULT = pytest.mark.django_db(transaction=True, databases="__all__")


@contextmanager
def body(made: Job) -> Iterator[CurrentJob]:
    """The body of the run that holds ``made``."""
    run = run_of(made)
    current = CurrentJob(made.id, made.name, 1, 3, "", rows=OwnRows(run))
    with running(current):
        yield current


def accounts(alias: str = "default") -> dict[str, int]:
    return dict(Account.objects.using(alias).values_list("name", "balance"))


LOSSES: dict[str, Callable[[Job], object]] = {
    "cancelled": lambda made: jobs().cancel(made.id, tenant=None, by="", reason=""),
    "superseded": lambda made: (
        jobs()
        .filter(id=made.id)
        .update(state=State.CANCELLED, lease=None, superseded_by=new_id(), finished_at=Now())
    ),
    "taken over": lambda made: jobs().filter(id=made.id).update(lease=new_token()),
    "lapsed": lambda made: (
        jobs().filter(id=made.id).update(state=State.READY, lease=None, lease_expires_at=None)
    ),
}
each_loss = pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)


def test_a_block_of_a_run_that_is_its_jobs_commits_and_extends_the_lease(jobs_alias: str) -> None:
    made = make(State.RUNNING, lease_expires_at=Now())  # It ran out, but nobody took it.
    with body(made) as current, current.atomic():
        Account.objects.using(jobs_alias).create(name="a", balance=1)
    assert accounts(jobs_alias) == {"a": 1}
    after = row(made.id)
    assert (after.state, after.lease) == ("running", made.lease)
    assert after.lease_expires_at is not None and made.lease_expires_at is not None
    assert (after.lease_expires_at - made.lease_expires_at).total_seconds() > 25


@each_loss
def test_a_block_of_a_run_that_lost_its_job_is_rolled_back(
    jobs_alias: str, lose: Callable[[Job], object], request: pytest.FixtureRequest
) -> None:
    made = make(State.RUNNING)
    lose(made)
    before = row(made.id)
    superseded = request.node.callspec.id.endswith("superseded")
    with pytest.raises(LeaseLost) as caught, body(made) as current, current.atomic():
        Account.objects.using(jobs_alias).create(name="a", balance=1)
        current.progress(1)
    assert type(caught.value) is (Superseded if superseded else LeaseLost)
    assert not accounts(jobs_alias)
    assert vars(row(made.id)) | {"_state": 0} == vars(before) | {"_state": 0}


@each_loss
@IN_DEFAULT
def test_a_loss_within_the_block_waits_for_nothing_and_rolls_it_back(
    lose: Callable[[Job], object],
) -> None:
    made = make(State.RUNNING)
    with party() as other, pytest.raises(LeaseLost), body(made) as current, current.atomic():
        Account.objects.create(name="a", balance=1)
        current.progress(1)  # Kept until the fence, or the other would wait here.
        other.do(lose, made)
    assert not accounts()
    assert row(made.id).progress is None


@IN_DEFAULT
def test_a_loss_that_comes_after_the_fence_waits_for_the_commit(monkeypatch: Any) -> None:
    made = make(State.RUNNING)
    commit, seen = connections["other"]._commit, []  # type: ignore[attr-defined]

    def locked() -> bool:
        try:
            with transaction.atomic():
                Job.objects.select_for_update(nowait=True).get(id=made.id)
        except OperationalError:
            return True
        return False

    def committing() -> None:
        with party() as other:
            seen.append(other.do(locked))
        commit()

    monkeypatch.setattr(connections["other"], "_commit", committing)
    with body(made) as current, current.atomic(using="other"):
        Account.objects.using("other").create(name="a", balance=1)
        assert not locked()
    assert seen == [True]
    assert not locked()
    assert accounts("other") == {"a": 1}


@each_loss
@IN_DEFAULT
def test_rows_in_another_database_are_fenced_too(lose: Callable[[Job], object]) -> None:
    made = make(State.RUNNING)
    lose(made)
    with pytest.raises(LeaseLost), body(made) as current, current.atomic(using="other"):
        Account.objects.using("other").create(name="a", balance=1)
    assert not accounts("other")


def test_an_error_in_the_block_rolls_it_back_and_leaves_the_run_its_jobs(jobs_alias: str) -> None:
    made = make(State.RUNNING)
    with body(made) as current:
        with pytest.raises(ZeroDivisionError), current.atomic():
            Account.objects.using(jobs_alias).create(name="a", balance=1)
            raise ZeroDivisionError
        with current.atomic():
            Account.objects.using(jobs_alias).create(name="b", balance=1)
            transaction.set_rollback(True, using=jobs_alias)
        with current.atomic():
            Account.objects.using(jobs_alias).create(name="c", balance=1)
    assert accounts(jobs_alias) == {"c": 1}


def test_progress_within_the_block_is_stored_with_its_commit(jobs_alias: str) -> None:
    made = make(State.RUNNING)
    with body(made) as current:
        with current.atomic():
            current.progress({"done": 1})
            assert row(made.id).progress is None
        assert row(made.id).progress == {"done": 1}
        current.progress({"done": 2})
    assert row(made.id).progress == {"done": 2}


def test_the_fence_is_refused_where_it_would_not_be_the_last_statement(jobs_alias: str) -> None:
    made = make(State.RUNNING)
    with body(made) as current:
        outer = transaction.atomic(using=jobs_alias)
        with pytest.raises(FenceRefused, match="in place of"), outer, current.atomic():
            pass
        with pytest.raises(FenceRefused, match="nested"), current.atomic(), current.atomic():
            pass
        with current.atomic():
            pass


@IN_DEFAULT
def test_the_fence_is_refused_inside_a_transaction_of_either_database() -> None:
    made = make(State.RUNNING)
    for open_alias in ("default", "other"):
        outer = transaction.atomic(using=open_alias)
        refused = pytest.raises(FenceRefused, match=open_alias)
        with refused, outer, body(made) as current, current.atomic(using="other"):
            pass


def test_on_an_event_loop_the_fence_is_refused_and_in_its_thread_it_holds(jobs_alias: str) -> None:
    made = make(State.RUNNING)

    def write() -> None:
        with current_job().atomic():
            Account.objects.using(jobs_alias).create(name="a", balance=1)
        connections.close_all()

    async def coroutine() -> None:
        with pytest.raises(FenceRefused, match="sync_to_async"):
            current_job().atomic()
        await sync_to_async(write)()

    with body(made):
        asyncio.run(coroutine())
    assert accounts(jobs_alias) == {"a": 1}


def test_a_run_that_was_told_to_stop_opens_no_block(jobs_alias: str) -> None:
    made = make(State.RUNNING)
    with body(made) as current, pytest.raises(LeaseLost):
        current.cancelled.set()
        with current.atomic():
            raise AssertionError("unreachable")


@pytest.mark.parametrize("lost", [True, False])
@IN_DEFAULT
def test_under_repeatable_read_a_loss_is_still_told_from_a_renewal(lost: bool) -> None:
    made = make(State.RUNNING)
    meanwhile = LOSSES["cancelled"] if lost else lambda m: jobs().renew([run_of(m)], 30.0)
    raised = pytest.raises(LeaseLost if lost else OperationalError)
    with party() as other, raised, body(made) as current, current.atomic():
        with connections["default"].cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        Account.objects.create(name="a", balance=1)
        other.do(meanwhile, made)
    assert not accounts()


# @job(atomic=True)


@pytest.fixture
def money() -> None:
    Account.objects.create(name="from", balance=100)
    Account.objects.create(name="to", balance=0)


@IN_DEFAULT
def test_an_atomic_body_and_its_success_are_one_transaction(money: None) -> None:
    result = enqueue(transfers, 10)
    [ran] = drain()
    assert ran.error == ""
    standing = get(result.id)
    assert (standing.state, standing.result, standing.progress) == ("done", "moved", 10)
    assert accounts() == {"from": 90, "to": 10}


@IN_DEFAULT
def test_an_atomic_body_that_fails_leaves_nothing_and_runs_again(money: None) -> None:
    result = enqueue(transfers.using(delay=0), 10, "fails once")
    drain()
    assert accounts() == {"from": 100, "to": 0}
    Job.objects.update(run_at=Now())
    drain()
    assert get(result.id).state == "done"
    assert accounts() == {"from": 90, "to": 10}


@IN_DEFAULT
def test_an_atomic_body_that_asks_for_a_rollback_is_done_all_the_same(money: None) -> None:
    result = enqueue(transfers, 10, "rolls back")
    drain()
    assert get(result.id).state == "done"
    assert accounts() == {"from": 100, "to": 0}


@IN_DEFAULT
def test_an_atomic_body_whose_job_is_cancelled_meanwhile_leaves_nothing(
    money: None, monkeypatch: Any
) -> None:
    result = enqueue(transfers, 10)
    progress = CurrentJob.progress

    def cancelled_meanwhile(self: CurrentJob, value: Any) -> None:
        with party() as other:
            other.do(LOSSES["cancelled"], row(result.id))
        progress(self, value)

    monkeypatch.setattr(CurrentJob, "progress", cancelled_meanwhile)
    drain()
    assert get(result.id).state == "cancelled"
    assert row(result.id).worker == ""  # Its body has ended.
    assert accounts() == {"from": 100, "to": 0}


def test_exactly_once_is_refused_for_rows_that_do_not_live_with_the_jobs(settings: Any) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "DATABASE": "other"}
    with pytest.raises(AtomicNeedsOneDatabase, match="atomic='other'"):
        transfers.call(10).request()


def test_an_atomic_body_is_neither_async_nor_anything_but_an_alias() -> None:
    async def coroutine() -> None:
        """Not a job."""

    def plain() -> None:
        """Not a job."""

    with pytest.raises(DeclarationError, match="sync_to_async"):
        job(idempotency_key=PER_CALL, atomic=True, name="x")(coroutine)
    with pytest.raises(DeclarationError, match="alias"):
        job(idempotency_key=PER_CALL, atomic=1, name="x")(plain)  # type: ignore[arg-type]
