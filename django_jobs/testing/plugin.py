"""Fixtures for pytest-django; name this module in ``pytest_plugins`` of your conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_jobs.testing.memory import MemoryQueue


@pytest.fixture
def memory_jobs(django_db_blocker: Any) -> Iterator[MemoryQueue]:
    """A memory queue for a test without a database, closed after it."""
    with django_db_blocker.unblock(), MemoryQueue() as queue:
        yield queue
