"""``assert_crash_safe`` finds what a crash would double or lose, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase

from django_jobs.models import Job, Step
from django_jobs.testing import assert_crash_safe
from tests.app.jobs import transfers
from tests.app.models import Account, Ledger
from tests.app.tasks import awaits_approval, pays, pays_in_a_block, pays_twice_if_killed


@pytest.fixture
def accounts(jobs_alias: str) -> None:
    Account.objects.using(jobs_alias).create(name="from", balance=100)
    Account.objects.using(jobs_alias).create(name="to", balance=0)


@pytest.mark.parametrize("job", [pays, pays_in_a_block])
def test_a_job_of_atomic_steps_is_crash_safe(jobs_alias: str, accounts: None, job: Any) -> None:
    assert assert_crash_safe(job, 10) >= 4
    rows = Account.objects.using(jobs_alias)
    assert dict(rows.values_list("name", "balance")) == {"from": 100, "to": 0}
    assert not Ledger.objects.using(jobs_alias).exists()
    assert not Job.objects.exists()
    assert not Step.objects.using(jobs_alias).exists()


def test_a_job_that_a_crash_would_make_pay_twice_is_found(jobs_alias: str, accounts: None) -> None:
    with pytest.raises(AssertionError, match="is not crash safe") as caught:
        assert_crash_safe(pays_twice_if_killed, 10)
    text = str(caught.value)
    assert "crashed after UPDATE" in text
    assert "tests.app.Account" in text or "app.Account" in text
    assert "atomic=True" in text
    assert not Job.objects.exists()


def test_a_job_that_waits_for_an_event_does_not_end_by_itself(jobs_alias: str) -> None:
    with pytest.raises(AssertionError, match="wait for an event"):
        assert_crash_safe(awaits_approval, "key")
    assert not Job.objects.exists()


class InATestCase(TestCase):
    """Django's own test case, whose transaction stays the test's."""

    databases = {"default", "other"}

    def test_it_works_within_a_test_case(self) -> None:
        Account.objects.create(name="from", balance=100)
        Account.objects.create(name="to", balance=0)
        assert assert_crash_safe(transfers, 10) >= 2
        assert not transaction.get_rollback()
        assert Account.objects.get(name="to").balance == 0
