"""The name of an installation: one row, whoever comes first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction

from django_jobs.lanes import wiring
from django_jobs.models import Deployment
from django_jobs.models.deployment import deployment_key
from django_jobs.testing import memory_queue


def test_migrate_names_the_installation(jobs_alias: str) -> None:
    (row,) = Deployment.objects.using(jobs_alias)
    assert deployment_key(jobs_alias) == row.key.hex


def test_two_processes_that_name_it_at_once_get_one_name(jobs_alias: str) -> None:
    Deployment.objects.using(jobs_alias).delete()
    barrier = Barrier(4)

    def name(_: int) -> str:
        try:
            barrier.wait()
            return deployment_key(jobs_alias)
        finally:
            connections[jobs_alias].close()

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(name, range(4)))) == 1
    assert Deployment.objects.using(jobs_alias).count() == 1


def test_there_is_no_second_row(jobs_alias: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic(using=jobs_alias):
        Deployment.objects.using(jobs_alias).create(id=2)


def test_a_memory_queue_has_a_name_too(db: None) -> None:
    with memory_queue():
        assert len(deployment_key("django_jobs_memory")) == 32


@pytest.mark.django_db(databases="__all__")
def test_two_installations_never_share_a_key(settings: Any) -> None:
    """Decision 13: staging and production on one server."""
    roots = []
    for alias in ("default", "other"):
        settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "DATABASE": alias, "LANES_PREFIX": "p"}
        roots.append(wiring.root())
    assert roots[0] != roots[1]
    assert all(root.startswith("p:") for root in roots)
