"""How outcomes are stored, and what becomes of one that the database will not have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections

from django_jobs.failures import failure_of
from django_jobs.leases import Held, LeaseBook
from django_jobs.loops.settler import REFUSED, Settler
from django_jobs.models import Attempt, Job
from django_jobs.outcomes import Buried, Lost, Outcome, Retried, Succeeded
from django_jobs.signals import job_ended
from django_jobs.states import State
from tests.rows.parties import make, row, run_of

BROKEN = '{"password": "hunter2"'
"""No JSON: neither engine stores it as a result."""


class Settling:
    """A settler with what it reports."""

    def __init__(self) -> None:
        self.book = LeaseBook(60)
        self.settler = Settler(self.book)
        self.reported: dict[Any, tuple[Outcome, float]] = {}

    def hold(self) -> Held:
        [held] = self.book.add([run_of(make(State.RUNNING))])
        assert self.book.start(held)
        return held

    def ended(self, sender: str, run: Any, outcome: Outcome, seconds: float, **_: Any) -> None:
        assert run.id not in self.reported
        self.reported[run.id] = outcome, seconds


@pytest.fixture
def settling() -> Iterator[Settling]:
    one = Settling()
    job_ended.connect(one.ended)
    yield one
    job_ended.disconnect(one.ended)


def test_a_result_that_the_database_refuses_keeps_no_other_from_its_end(
    jobs_alias: str, settling: Settling, caplog: pytest.LogCaptureFixture
) -> None:
    group = [settling.hold() for _ in range(5)]
    bad = group[2].run.id
    for held in group:
        result = BROKEN if held.run.id == bad else '"good"'
        settling.settler.put(held, Succeeded(result))
    settling.settler.tick()
    assert settling.settler.idle() and len(settling.book) == 0
    for held in group:
        outcome, _ = settling.reported[held.run.id]
        if held.run.id == bad:
            assert isinstance(outcome, Buried)
        else:
            assert (outcome, row(held.run.id).result) == (Succeeded('"good"'), "good")
    dead = row(bad)
    assert (dead.state, dead.reason, dead.result) == (State.DEAD, REFUSED, None)
    [attempt] = Attempt.objects.using(jobs_alias).filter(job_id=bad)
    assert attempt.error_class == "django_jobs.errors.ResultError"
    assert "The database refused the outcome" in attempt.message
    assert str(bad) in caplog.text
    assert "hunter2" not in caplog.text + attempt.message + attempt.traceback


@contextmanager
def refusing(alias: str, when: str) -> Iterator[None]:
    """The job table refuses every update to a row that fits ``when``."""
    with connections[alias].cursor() as cursor:
        if alias == "sqlite":
            cursor.execute(
                f"CREATE TRIGGER tests_refusing BEFORE UPDATE ON django_jobs_job WHEN {when} "
                "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            )
            drop = "DROP TRIGGER tests_refusing"
        else:
            cursor.execute(
                "CREATE FUNCTION tests_refusing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "RAISE EXCEPTION 'not this one' USING ERRCODE = 'check_violation'; END $$; "
                "CREATE TRIGGER tests_refusing BEFORE UPDATE ON django_jobs_job FOR EACH ROW "
                f"WHEN ({when}) EXECUTE FUNCTION tests_refusing()"
            )
            drop = "DROP FUNCTION tests_refusing CASCADE"
        yield
        cursor.execute(drop)


@pytest.mark.parametrize("everything", [False, True], ids=["its outcome", "its end too"])
def test_a_job_whose_outcome_is_refused_is_dead_and_if_that_is_refused_left_to_its_lease(
    jobs_alias: str, settling: Settling, everything: bool
) -> None:
    bad, good = settling.hold(), settling.hold()
    for held in (bad, good):
        settling.settler.put(held, Retried(failure_of(ValueError()), 1.0))
    job_id = bad.run.id.hex if jobs_alias == "sqlite" else bad.run.id
    with refusing(jobs_alias, f"NEW.id = '{job_id}' AND (NEW.state = 'delayed' OR {everything})"):
        settling.settler.tick()
    assert settling.settler.idle() and len(settling.book) == 0
    assert row(good.run.id).state == State.DELAYED
    assert row(bad.run.id).state == (State.RUNNING if everything else State.DEAD)
    reported = type(settling.reported[bad.run.id][0])
    assert reported is (Lost if everything else Buried)
    assert Attempt.objects.using(jobs_alias).count() == (1 if everything else 2)


def test_what_is_reported_as_its_length_is_the_body_s_alone(
    jobs_alias: str, settling: Settling
) -> None:
    ran, never = settling.hold(), settling.hold()
    ran.run.claimed_at -= 100  # It waited so long for a thread.
    ran.run.began_at = time.monotonic() - 5
    ran.end()
    ran.ended_at += 2  # The settle came later than this, and that does not count.
    for held in (ran, never):
        settling.settler.put(held, Retried(failure_of(ValueError()), 1.0))
    settling.settler.tick()
    assert 7 <= settling.reported[ran.run.id][1] < 8
    assert settling.reported[never.run.id][1] == 0
    attempt = Attempt.objects.using(jobs_alias).get(job_id=ran.run.id)
    assert attempt.started_at is not None
    assert 5 <= (attempt.ended_at - attempt.started_at).total_seconds() < 10
    assert Job.objects.filter(state=State.DELAYED).count() == 2
