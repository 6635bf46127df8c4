"""A committed job starts within milliseconds, and an idle worker costs next to nothing."""

from __future__ import annotations

import statistics
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, connections, transaction

from django_jobs import cancel, enqueue, enqueue_many, get
from django_jobs.models import Job, waking
from django_jobs.models.waking import CHANNEL, Hint
from tests.app.jobs import fails, noop, record, slow
from tests.app.models import Ledger
from tests.waiting import until


def lags(count: int) -> list[float]:
    """Seconds from the commit of each of ``count`` jobs to its start, by the database's clock."""
    results = []
    for _ in range(count):
        with transaction.atomic():
            results.append(enqueue(noop))
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            committed = cursor.fetchone()[0]
        until(lambda: get(results[-1].id).state == "done", 20)
        started = Job.objects.get(id=results[-1].id).started_at
        assert started is not None
        results[-1] = (started - committed).total_seconds()  # type: ignore[call-overload]
    return results  # type: ignore[return-value]


def test_an_idle_worker_starts_a_committed_job_at_once(worker: Any) -> None:
    running = worker(IDLE_POLL=30)
    running.wait_for("started: queues")
    lags(1)
    time.sleep(0.5)
    assert statistics.median(lags(20)) < 0.1
    assert running.stop() == 0


def test_a_hint_that_was_dropped_just_after_another_delays_nothing(worker: Any) -> None:
    """A process tells at most once in ten milliseconds; each job here follows the last at once."""
    running = worker(IDLE_POLL=30)
    running.wait_for("started: queues")
    for _ in range(100):
        with transaction.atomic():
            result = enqueue(noop)
        until(lambda id_=result.id: get(id_).state == "done", 10)
    assert running.stop() == 0


def test_cancels_in_a_row_stop_all_their_bodies(worker: Any) -> None:
    running = worker("--threads", "4", LEASE=120)
    ids = [enqueue(slow, 60.0, key).id for key in "abcd"]
    until(lambda: Ledger.objects.filter(note__startswith="start").count() == 4)
    for id_ in ids:
        cancel(id_)
    until(lambda: set(Job.objects.values_list("worker", flat=True)) == {""}, 10)
    assert running.stop() == 0


def test_where_nothing_is_delivered_a_job_starts_within_a_poll_interval(
    worker: Any, settings: Any
) -> None:
    """On SQLite; test_connections.py has PgBouncer, behind which LISTEN is mute."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "DATABASE": "sqlite"}
    running = worker(POLL_INTERVAL=0.25, IDLE_POLL=30)
    running.wait_for("started: queues")
    time.sleep(1)
    asked = time.monotonic()
    result = enqueue(noop)
    until(lambda: get(result.id).state == "done", 10)
    assert time.monotonic() - asked < 3
    assert running.stop() == 0


def test_a_delayed_job_starts_when_it_is_due_and_so_does_a_retry(worker: Any) -> None:
    running = worker(IDLE_POLL=30, POLL_INTERVAL=30)
    running.wait_for("started: queues")
    time.sleep(1)
    retried = enqueue(fails, 2)
    until(lambda: get(retried.id).state == "done", 10)
    result = enqueue(record.using(delay=timedelta(seconds=2)), "later")
    until(lambda: get(result.id).state == "done", 15)
    job = Job.objects.get(id=result.id)
    assert job.started_at is not None
    late = (job.started_at - job.created_at).total_seconds() - 2
    assert -0.01 <= late < 1.0  # 0.5 s, and what a busy machine takes.
    assert running.stop() == 0


def transactions(server: Any) -> int:
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("SELECT pg_stat_force_next_flush()")
        row = admin.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s",
            [connections.settings["private"]["NAME"]],
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_an_idle_worker_asks_at_most_four_times_a_second(private: Any, private_worker: Any) -> None:
    running = private_worker("--queues", "default,a,b")
    first = enqueue(noop)
    until(lambda: get(first.id).state == "done")
    connections["private"].close()
    time.sleep(3)  # Sessions report what they did when they have been idle for a second.
    before, began = transactions(private), time.monotonic()
    time.sleep(6)
    rate = (transactions(private) - before) / (time.monotonic() - began)
    assert rate <= 4
    assert running.stop() == 0


def heard(listener: psycopg.Connection[Any], seconds: float = 0.5) -> list[str]:
    return [message.payload for message in listener.notifies(timeout=seconds)]


@pytest.fixture
def listener(transactional_db: None) -> Any:
    parameters = connection.get_connection_params()
    for name in ("cursor_factory", "context", "prepare_threshold"):
        parameters.pop(name, None)
    with psycopg.connect(**parameters, autocommit=True) as session:
        session.execute(f'LISTEN "{CHANNEL}"')
        yield session


def test_a_wake_up_is_given_after_the_commit_once_and_never_for_a_rollback(listener: Any) -> None:
    with transaction.atomic():
        for number in range(20):
            enqueue(noop, number)
        assert heard(listener) == []
    assert heard(listener) == ["staged"]
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        enqueue(noop)
        raise ZeroDivisionError
    assert heard(listener) == []


def test_wake_ups_in_quick_succession_are_one(listener: Any) -> None:
    time.sleep(0.05)
    for _ in range(50):
        waking.notify("default", Hint.READY)
    assert 1 <= len(heard(listener)) <= 10


def test_a_wake_up_that_fails_costs_the_caller_nothing(
    transactional_db: None, monkeypatch: Any
) -> None:
    time.sleep(0.05)
    asked = []

    def refuse(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if "pg_notify" in str(sql):
            asked.append(sql)
            raise DatabaseError("no")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse):
        with transaction.atomic():
            result = enqueue(noop)
        many = enqueue_many(noop.call(n) for n in range(3))
    assert asked
    assert get(result.id).state == "staged"
    assert {get(r.id).state for r in many} == {"ready"}
