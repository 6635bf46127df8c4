"""Several lines of steps at once: all of them settle before the run suspends or fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, overload

from django.db import connections

from django_jobs.errors import Suspended
from django_jobs.steps.journal import Journal
from django_jobs.steps.running import in_thread, journal_here

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
T = TypeVar("T")


@overload
def parallel(one: Callable[[], A], /, *, threads: int = 1) -> tuple[A]: ...
@overload
def parallel(one: Callable[[], A], two: Callable[[], B], /, *, threads: int = 1) -> tuple[A, B]: ...
@overload
def parallel(
    one: Callable[[], A], two: Callable[[], B], three: Callable[[], C], /, *, threads: int = 1
) -> tuple[A, B, C]: ...
@overload
def parallel(*branches: Callable[[], T], threads: int = 1) -> tuple[T, ...]: ...


def parallel(*branches: Callable[[], Any], threads: int = 1) -> tuple[Any, ...]:
    """The result of each branch, a function that calls steps, in their order.

    While one branch sleeps, waits or has failed, the others go on; then the run suspends until
    the first is due, or raises the first error. Branches run one after the other, or on up to
    ``threads`` threads, each with database connections of its own.
    """
    journal = journal_here()
    if journal is None:
        return tuple(branch() for branch in branches)
    settled = _Settled()
    journal.enter_parallel()
    try:
        if threads > 1:
            _on_threads(journal, branches, settled, threads)
        else:
            for number, branch in enumerate(branches):
                settled.note(number, branch)
    finally:
        journal.leave_parallel()
    return settled.results(journal, len(branches))


async def aparallel(*branches: Callable[[], Awaitable[T]]) -> tuple[T, ...]:
    """``parallel`` for async bodies: each branch is an async function, all run at once."""
    journal = journal_here()
    if journal is None:
        return tuple(await asyncio.gather(*(branch() for branch in branches)))
    settled = _Settled()
    await in_thread(journal.enter_parallel)

    async def settle(number: int, branch: Callable[[], Awaitable[T]]) -> None:
        try:
            settled.values[number] = await branch()
        except Suspended as suspension:
            settled.suspensions.append(suspension)
        except Exception as error:
            settled.errors[number] = error

    try:
        await asyncio.gather(*(settle(number, branch) for number, branch in enumerate(branches)))
    finally:
        await in_thread(journal.leave_parallel)
    return settled.results(journal, len(branches))


class _Settled:
    """How the branches ended."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.errors: dict[int, Exception] = {}
        self.suspensions: list[Suspended] = []

    def note(self, number: int, branch: Callable[[], Any]) -> None:
        """Run one branch here. What interrupts the run interrupts all of it."""
        try:
            self.values[number] = branch()
        except Suspended as suspension:
            self.suspensions.append(suspension)
        except Exception as error:
            self.errors[number] = error

    def results(self, journal: Journal, count: int) -> tuple[Any, ...]:
        """All results; else the first error, else the suspension that ends first."""
        if self.errors:
            raise self.errors[min(self.errors)]
        if self.suspensions:
            soonest = min(self.suspensions, key=lambda one: one.delay)
            raise journal.suspend(soonest.delay, soonest.reason)
        return tuple(self.values[number] for number in range(count))


def _on_threads(
    journal: Journal, branches: tuple[Callable[[], Any], ...], settled: _Settled, threads: int
) -> None:
    def on_a_thread(number: int, branch: Callable[[], Any]) -> None:
        try:
            settled.note(number, branch)
        finally:
            connections.close_all()

    work = journal.current.wrap(on_a_thread)
    with ThreadPoolExecutor(threads, thread_name_prefix="branch") as pool:
        for future in [pool.submit(work, n, branch) for n, branch in enumerate(branches)]:
            future.result()
