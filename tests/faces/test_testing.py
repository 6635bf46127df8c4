"""The helpers for a project's own tests."""

from __future__ import annotations

import gc
import warnings

import pytest
from django.db import connections, transaction
from django.test import TestCase

from django_jobs import enqueue, get
from django_jobs.testing import MemoryQueue, advance, assert_enqueued, drain, memory_queue
from tests.app.jobs import coroutine, fails_once, noop, record, terminal
from tests.app.models import Ledger

pytest_plugins = ["django_jobs.testing.plugin"]


class DrainTests(TestCase):
    def test_drain_runs_staged_and_direct_jobs_inside_a_test_case(self) -> None:
        direct = enqueue(record, "direct")
        assert direct.status == "published"
        with transaction.atomic():
            staged = enqueue(record, "staged")
        assert staged.status == "staged"
        assert {ran.job_id for ran in drain()} == {direct.id, staged.id}
        assert get(staged.id).result == "staged"
        assert Ledger.objects.count() == 2
        assert drain() == []

    def test_time_passes_by_moving_rows(self) -> None:
        job = enqueue(fails_once)
        (ran,) = drain()
        assert ran.error.startswith("ValueError: attempt 1 fails; password=")
        assert get(job.id).state == "delayed"
        advance(10)
        drain()
        assert get(job.id).state == "done"
        later = enqueue(noop.using(delay=86_400), 1)
        assert drain() == []
        advance(86_400)
        assert [ran.job_id for ran in drain()] == [later.id]

    def test_async_bodies_see_the_rows_of_the_test(self) -> None:
        job = enqueue(coroutine, 0.0, "here")
        drain()
        assert get(job.id).state == "done"
        assert Ledger.objects.get().note == "here"

    def test_assert_enqueued_tells_what_there_was(self) -> None:
        enqueue(record, key="a")
        assert assert_enqueued(record, key="a", count=1) == [{"key": "a"}]
        with pytest.raises(AssertionError, match="record was expected at least once with key='b'"):
            assert_enqueued(record, key="b")


def test_a_memory_queue_needs_no_database(memory_jobs: MemoryQueue) -> None:
    job = enqueue(terminal)
    assert [ran.error for ran in memory_jobs.drain()] == ["django_jobs.errors.Terminal: no use"]
    assert get(job.id).state == "dead"


@pytest.mark.django_db
def test_a_closed_memory_queue_has_dropped_everything() -> None:
    queue = memory_queue()
    enqueue(noop)
    queue.close()
    queue.close()
    assert "django_jobs_memory" not in connections.settings
    with memory_queue() as fresh:
        assert fresh.drain() == []


@pytest.mark.django_db
def test_a_memory_queue_that_is_not_closed_says_so() -> None:
    queue = memory_queue()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        queue.__del__()
        gc.collect()
    assert any("not closed" in str(one.message) for one in caught)
    queue.close()
