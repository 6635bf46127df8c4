"""What we do inside a transaction of the caller's, and only there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connections, transaction
from django.test import TestCase

import django_jobs
from django_jobs import aenqueue, enqueue, get
from django_jobs.models import Job, picking, waking
from django_jobs.models.waking import Hint
from django_jobs.states import State
from tests.app.jobs import noop, record
from tests.rows.parties import make

postgres_only = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def hints() -> Iterator[list[Hint]]:
    """The hints that this process has heard."""
    heard: list[Hint] = []
    forget = waking.subscribe(heard.append)
    yield heard
    forget()


def test_a_hint_follows_the_commit_and_a_rollback_gives_none(
    jobs_alias: str, hints: list[Hint]
) -> None:
    running = [make(State.RUNNING).id for _ in range(3)]
    with transaction.atomic(using=jobs_alias):
        django_jobs.cancel(running[0])
        assert hints == []
    assert hints == [Hint.STOP]
    with transaction.atomic(using=jobs_alias):
        django_jobs.cancel(running[1])
        transaction.set_rollback(True, using=jobs_alias)
    assert hints == [Hint.STOP]
    django_jobs.cancel(running[2])
    assert hints == [Hint.STOP] * 2


class HooksOfItsOwn(TestCase):
    databases = {"default"}

    def runTest(self) -> None:
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            enqueue(noop)


@postgres_only
def test_a_test_that_runs_its_own_hooks_hears_each_hint_once(hints: list[Hint]) -> None:
    HooksOfItsOwn().debug()
    assert hints == [Hint.STAGED]


DEADLOCK = "DO $$ BEGIN RAISE EXCEPTION 'met' USING ERRCODE = 'deadlock_detected'; END $$"


class Deadlocking:
    """A transaction that meets a deadlock each time, and counts them."""

    def __init__(self) -> None:
        self.met = 0

    def __call__(self) -> None:
        self.met += 1
        with transaction.atomic(), connections["default"].cursor() as cursor:
            cursor.execute(DEADLOCK)


@postgres_only
def test_a_deadlock_is_tried_again_but_not_inside_a_transaction_that_it_has_ended() -> None:
    alone, inside = Deadlocking(), Deadlocking()
    with pytest.raises(OperationalError, match="met"):
        picking.retrying(alone)
    with pytest.raises(OperationalError, match="met"), transaction.atomic():
        picking.retrying(inside)
    assert (alone.met, inside.met) == (3, 1)


@postgres_only
def test_a_transaction_on_another_database_keeps_no_try_away() -> None:
    work: Any = Deadlocking()
    with transaction.atomic(using="other"), pytest.raises(OperationalError):
        picking.retrying(work)
    assert work.met == 3


@postgres_only
def test_a_cancelled_async_call_has_happened_or_not_and_answers_nobody_else() -> None:
    """CON-10."""
    chance = random.Random(3)

    async def call(number: int) -> tuple[int, Any]:
        patience = chance.uniform(0.0, 0.003) if chance.random() < 0.3 else 30
        try:
            return number, await asyncio.wait_for(aenqueue(record, str(number)), patience)
        except TimeoutError:
            return number, None

    async def all_at_once() -> list[tuple[int, Any]]:
        answers = await asyncio.gather(*[call(number) for number in range(300)])
        await sync_to_async(connections.close_all)()  # All calls were made in one thread.
        return answers

    answers = asyncio.run(all_at_once())
    answered = {number: answer for number, answer in answers if answer is not None}
    assert 100 < len(answered) < 300
    keys = dict(Job.objects.values_list("id", "idempotency_key"))
    for number, answer in answered.items():
        assert (answer.status, keys[answer.id]) == ("published", f"record:{number}")
        assert get(answer.id).state == "ready"
    assert len(set(keys.values())) == len(keys) <= 300
