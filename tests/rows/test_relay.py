"""What becomes of entries when the database fails while they are published."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import InternalError, OperationalError, connections, transaction

from django_jobs import enqueue_many, get
from django_jobs.loops import relay
from django_jobs.models import publishing
from django_jobs.models.outbox import QUARANTINED
from tests.app.jobs import noop
from tests.rows.parties import Party, jobs, party

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def stage(*calls: Any) -> list[Any]:
    with transaction.atomic():
        return enqueue_many(calls)


def execute(sql: str) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(sql)


@contextmanager
def inserting(does: str, when: str = "TRUE") -> Iterator[None]:
    """What happens, in PL/pgSQL, when a row that fits ``when`` is inserted as a job."""
    execute(
        "CREATE FUNCTION tests_inserting() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {does}; RETURN NEW; END $$; CREATE TRIGGER tests_inserting BEFORE INSERT ON "
        f"django_jobs_job FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION tests_inserting()"
    )
    try:
        yield
    finally:
        connections["default"].close()
        execute("DROP FUNCTION tests_inserting CASCADE")


def claimed() -> int:
    return publishing.outbox("default").pending().exclude(claimed_until=None).count()


def test_entries_are_released_at_once_when_the_session_breaks_while_they_are_published() -> None:
    stage(noop.call(1), noop.call(2))
    with (
        inserting("PERFORM pg_terminate_backend(pg_backend_pid())"),
        pytest.raises(OperationalError),
    ):
        relay.tick("default")
    assert claimed() == 0
    assert set(publishing.outbox("default").values_list("attempts", flat=True)) == {0}
    assert relay.tick("default") == 2


def test_a_standby_that_refuses_every_write_is_no_fault_of_an_entry() -> None:
    stage(noop.call(1), noop.call(2))
    refusal = "RAISE EXCEPTION 'read-only' USING ERRCODE = 'read_only_sql_transaction'"
    with inserting(refusal), pytest.raises(InternalError):
        relay.tick("default")
    assert claimed() == 0
    assert set(publishing.outbox("default").values_list("attempts", flat=True)) == {0}


@pytest.mark.parametrize(
    ("fault", "refusal"),
    [
        ("PERFORM pg_sleep(5)", "statement timeout"),
        ("RAISE EXCEPTION 'too large' USING ERRCODE = 'program_limit_exceeded'", "too large"),
        ("RAISE EXCEPTION 'too deep' USING ERRCODE = 'statement_too_complex'", "too deep"),
        ("RAISE EXCEPTION 'too long' USING ERRCODE = 'string_data_right_truncation'", "too long"),
    ],
)
def test_an_entry_that_the_database_cannot_take_is_set_aside_and_the_others_go_on(
    settings: Any, fault: str, refusal: str
) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "PUBLISH_ATTEMPTS": 1}
    (bad,) = stage(noop.using(queue="bad").call(1))
    (good,) = stage(noop.call(2))
    with inserting(fault, when="NEW.queue = 'bad'"):
        execute("SET statement_timeout = 300")
        assert relay.tick("default") == 1
    assert get(good.id).state == "ready"
    assert (get(bad.id).state, refusal in get(bad.id).reason) == (QUARANTINED, True)


class RowsTaken:
    """At the relay's first look at what it claimed, another session has locked those rows."""

    def __init__(self, other: Party) -> None:
        self.other, self.block, self.taken = other, transaction.atomic(), False

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not self.taken and sql.lstrip().startswith("SELECT") and "claimed_by = " in sql:
            self.taken = True
            self.other.do(self.block.__enter__)
            rows = publishing.outbox("default").select_for_update()
            self.other.do(lambda: list(rows))
        return execute(sql, params, many, context)

    def let_go(self) -> None:
        self.other.do(self.block.__exit__, None, None, None)


def test_a_claim_that_could_not_be_released_is_released_by_the_next_tick(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage(noop.call(1))
    monkeypatch.setattr(relay, "RELEASE_PATIENCE", 0.05)
    caplog.set_level(logging.DEBUG, "django_jobs.relay")
    execute("SET lock_timeout = 50")
    with party() as other:
        taken = RowsTaken(other)
        with connections["default"].execute_wrapper(taken), pytest.raises(OperationalError):
            relay.tick("default")
        assert claimed() == 1
        assert relay.tick("default") == 0
        taken.let_go()
    assert "releasing 1 entries of 'default'" in caplog.text
    assert relay.tick("default") == 1
    assert jobs().count() == 1
    connections["default"].close()


def test_what_follows_an_entry_that_somebody_has_locked_waits_for_it() -> None:
    """A cancel that rolls back must not have let the later ones past."""
    first, locked, third = stage(*[noop.call(n) for n in range(3)])
    (elsewhere,) = stage(noop.call(9))
    with party() as canceller:
        block = transaction.atomic()
        canceller.do(block.__enter__)
        rows = publishing.outbox("default").filter(id=locked.id)
        assert canceller.do(lambda: rows.update(outcome="cancelled")) == 1
        assert relay.tick("default") == 1
        assert {job.id for job in jobs()} == {elsewhere.id}, "its order group waits as a whole"
        assert relay.tick("default") == 0
        canceller.do(lambda: transaction.set_rollback(True))
        canceller.do(block.__exit__, None, None, None)
    assert relay.tick("default") == 3
    assert {job.id for job in jobs()} == {first.id, locked.id, third.id, elsewhere.id}
