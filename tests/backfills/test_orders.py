"""Pause, resume, cancel and another rate; and what a run that is no longer the pass's may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from django_jobs import cancel, retry
from django_jobs.errors import BackfillNotFound, BackfillRefused, UnknownValue
from django_jobs.models import Advance, Backfill, BackfillRange, Job
from django_jobs.operations.backfilling import (
    cancel_backfill,
    found_pass,
    pause_backfill,
    rerate_backfill,
    resume_backfill,
)
from django_jobs.operations.reporting import report, shown_state
from django_jobs.testing import drain
from tests.app import backfills as declared
from tests.app.backfills import count_changes, fill_slowly, items
from tests.backfills.parties import changes, make_items, start, sweep
from tests.rows.parties import at_once
from tests.waiting import until


@pytest.fixture
def before() -> Iterator[Callable[[int, Callable[[], object]], None]]:
    """``before(n, act)``: ``act`` once the run has seen that it may begin page number ``n``."""

    def arrange(number: int, act: Callable[[], object]) -> None:
        declared.before_page[:] = [lambda: None] * (number - 1) + [act]

    yield arrange
    declared.before_page.clear()


def test_a_paused_pass_stops_behind_a_page_and_goes_on_there_when_resumed(
    jobs_alias: str, before: Any
) -> None:
    make_items(10)
    started = start(count_changes)
    before(3, lambda: pause_backfill(started.pk, by="ann", reason="lunch"))
    drain()
    paused = found_pass(started.pk)
    assert (paused.state, paused.ordered_by, paused.reason) == ("paused", "ann", "lunch")
    assert paused.rows == sum(changes()) == 6
    assert drain() == []
    resume_backfill(started.pk, by="bob")
    drain()
    done = found_pass(started.pk)
    assert (done.state, done.rows, done.ordered_by) == ("completed", 10, "bob")
    assert changes() == [1] * 10


@pytest.mark.parametrize("page", [1, 2, 4])
def test_a_pass_cancelled_before_any_page_ends_cancelled_and_stays_so(
    jobs_alias: str, before: Any, page: int
) -> None:
    make_items(10)
    started = start(count_changes)
    before(page, lambda: cancel_backfill(started.pk))
    drain()
    ended = found_pass(started.pk)
    assert ended.state == "cancelled"
    assert sum(changes()) == ended.rows == 3 * (page - 1)
    with pytest.raises(BackfillRefused, match="cancelled"):
        resume_backfill(started.pk)


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_a_cancel_in_the_middle_of_a_page_rolls_that_page_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_items(10)
    started = start(count_changes)

    def handle(page: Any) -> None:
        declared.bump(page)
        if page[0].name == "item 6":
            at_once(lambda: cancel_backfill(started.pk))

    monkeypatch.setattr(count_changes, "handle", handle)
    drain()
    assert found_pass(started.pk).state == "cancelled"
    assert found_pass(started.pk).rows == sum(changes()) == 6


def test_a_cancel_at_the_start_of_a_run_is_never_overwritten(worker: Any) -> None:
    make_items(30)
    worker("--threads", "2")
    for n in range(12):
        started = start(fill_slowly, force=True)
        until(lambda p=started.pk, n=n: n % 3 == 0 or found_pass(p).started_at is not None)
        try:
            cancel_backfill(started.pk)
        except BackfillRefused:
            assert found_pass(started.pk).state == "completed"
            continue
        at = sum(changes())
        ids = Job.objects.filter(name="fill_slowly", state__in=["running", "ready"])
        until(lambda q=ids: not q.exists())
        assert found_pass(started.pk).state == "cancelled"
        assert sum(changes()) - at <= 2


def test_a_run_that_lost_its_job_moves_no_cursor(jobs_alias: str, before: Any) -> None:
    make_items(10)
    started = start(count_changes)
    # As the relay and the next claim do it: another run holds the job now.
    before(2, lambda: Job.objects.update(lease=uuid4()))
    drain()
    seen = found_pass(started.pk)
    assert (seen.rows, sum(changes())) == (3, 3)


def test_a_range_that_was_given_to_another_job_is_void_for_the_first(
    jobs_alias: str, before: Any
) -> None:
    make_items(10)
    started = start(count_changes)
    before(2, lambda: BackfillRange.objects.update(job_id=uuid4()))
    drain()
    assert found_pass(started.pk).rows == sum(changes()) == 3


def test_a_cursor_moves_from_where_the_page_began_and_nowhere_else(jobs_alias: str) -> None:
    started = start(count_changes)
    [range_] = started.ranges.all()
    job_id = uuid4()
    ranges = BackfillRange.objects.all()
    ranges.update(job_id=job_id)
    first, second = (
        Advance(None, '["5"]', 5, 0, 3, False),
        Advance('["5"]', '["9"]', 4, 0, 3, False),
    )
    assert ranges.advance(range_.pk, job_id, first) == 1
    assert ranges.advance(range_.pk, job_id, first) == 0
    assert ranges.advance(range_.pk, uuid4(), second) == 0
    assert ranges.advance(range_.pk, job_id, second) == 1
    Backfill.objects.update(state="paused")
    assert ranges.advance(range_.pk, job_id, Advance('["9"]', '["10"]', 1, 0, 3, True)) == 0
    assert found_pass(started.pk).rows == 9


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_two_parties_move_one_cursor_once() -> None:
    started = start(count_changes)
    [range_] = started.ranges.all()
    BackfillRange.objects.update(job_id=started.job_id)
    page = Advance(None, '["5"]', 5, 0, 3, False)
    moved = at_once(
        *[lambda: BackfillRange.objects.all().advance(range_.pk, started.job_id, page)] * 4
    )
    assert sorted(moved) == [0, 0, 0, 1]


def test_a_failed_pass_keeps_rows_and_cursor_and_a_retried_job_adopts_it(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_items(10)
    broken = [True]

    def handle(page: Any) -> None:
        if broken[0] and page[0].name == "item 6":
            raise ZeroDivisionError("password=hunter2")
        declared.bump(page)

    monkeypatch.setattr(count_changes, "handle", handle)
    started = start(count_changes)
    until(lambda: drain() is not None and found_pass(started.pk).state == "failed")
    failed = found_pass(started.pk)
    assert (failed.rows, sum(changes()), failed.ranges.get().done) == (6, 6, False)
    assert "ZeroDivisionError" in failed.error and "hunter2" not in failed.error
    assert [s.state for s in report().standings if s.name == "count_changes"] == ["failed"]
    broken[0] = False
    retry(failed.job_id)
    drain()
    done = found_pass(started.pk)
    assert (done.state, done.rows, done.error) == ("completed", 10, "")
    assert done.started_at == failed.started_at
    assert changes() == [1] * 10
    monkeypatch.undo()


def test_a_running_pass_whose_job_was_cancelled_is_stale_pending_and_can_be_resumed(
    jobs_alias: str,
) -> None:
    make_items(4)
    started = start(count_changes)
    assert shown_state(found_pass(started.pk)) == "running"
    with pytest.raises(BackfillRefused, match="works on it"):
        resume_backfill(started.pk)
    cancel(started.job_id)  # type: ignore[arg-type]
    assert shown_state(found_pass(started.pk)) == "stale"
    [standing] = [s for s in report().standings if s.name == "count_changes"]
    assert (standing.state, standing.is_pending) == ("stale", True)
    resume_backfill(started.pk)
    drain()
    assert found_pass(started.pk).state == "completed"
    assert changes() == [1] * 4


def test_a_pass_takes_its_new_rate_while_it_runs(jobs_alias: str, before: Any) -> None:
    make_items(9)
    started = start(count_changes)
    rerate_backfill(started.pk, 0.001)
    before(1, lambda: rerate_backfill(started.pk, None))
    drain()  # With the first rate it would take half an hour.
    assert found_pass(started.pk).state == "completed"
    for rate in (0, -1, float("nan"), float("inf"), True):
        with pytest.raises(BackfillRefused, match="above 0"):
            rerate_backfill(started.pk, rate)
    with pytest.raises(BackfillRefused, match="completed"):
        rerate_backfill(started.pk, 1.0)


def test_an_order_to_no_pass_is_refused(jobs_alias: str) -> None:
    with pytest.raises(BackfillNotFound):
        pause_backfill(uuid4())


def test_an_unknown_state_is_a_typed_error_that_names_the_real_table(jobs_alias: str) -> None:
    done = sweep(count_changes)
    Backfill.objects.update(state="resting")
    with pytest.raises(UnknownValue) as caught:
        shown_state(found_pass(done.pk))
    assert caught.value.table == Backfill._meta.db_table == "django_jobs_backfill"
    assert (caught.value.column, caught.value.value) == ("state", "resting")
    assert "paused" in caught.value.known


def test_rows_are_counted_beyond_32_bits(jobs_alias: str) -> None:
    make_items(4)
    started = start(count_changes)
    drain()
    BackfillRange.objects.update(rows=2**53 + 1)
    found = found_pass(started.pk)
    assert found.rows == 2**53 + 1
    assert type(found.rows) is int
    assert items().count() == 4
