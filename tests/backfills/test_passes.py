"""A pass from its start to its end, and what the ledger says of it."""

from __future__ import annotations

import pytest

from django_jobs.errors import BackfillRefused
from django_jobs.models import Backfill
from tests.app.backfills import count_changes, fill
from tests.backfills.parties import changes, make_items, start, sweep


def test_every_row_is_handled_once_in_pages_of_the_order(jobs_alias: str) -> None:
    make_items(10)
    done = sweep(count_changes)
    assert (done.state, done.rows, done.pages, done.skipped) == ("completed", 10, 4, 0)
    assert changes() == [1] * 10
    assert done.finished_at >= done.started_at >= done.created_at


def test_rows_may_leave_the_source_as_they_are_changed(jobs_alias: str) -> None:
    make_items(10)
    done = sweep(fill)
    assert (done.state, done.rows, done.remaining) == ("completed", 10, 0)
    assert changes() == [1] * 10


def test_an_empty_source_is_complete_without_a_page(jobs_alias: str) -> None:
    done = sweep(count_changes)
    assert (done.state, done.rows, done.pages) == ("completed", 0, 0)


def test_a_completed_backfill_runs_again_only_by_force_and_into_a_row_of_its_own(
    jobs_alias: str,
) -> None:
    make_items(3)
    first = sweep(count_changes)
    with pytest.raises(BackfillRefused, match=str(first.pk)) as refused:
        start(count_changes)
    assert refused.value.gate == "applied"
    second = sweep(count_changes, force=True)
    assert changes() == [2] * 3
    assert Backfill.objects.count() == 2
    first.refresh_from_db()
    assert (first.state, second.state) == ("completed", "completed")


def test_a_second_start_names_the_job_of_the_pass_that_is_open(jobs_alias: str) -> None:
    started = start(count_changes)
    for force in (False, True):
        with pytest.raises(BackfillRefused) as refused:
            start(count_changes, force=force)
        assert (refused.value.gate, refused.value.job_id) == ("running", started.job_id)
    assert Backfill.objects.count() == 1
