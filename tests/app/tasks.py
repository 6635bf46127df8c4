"""Jobs with steps. Each lets a test say what its body does, in its own process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django_jobs import PER_CALL, Retry, conf, current_job, job, step
from tests.app.jobs import move
from tests.app.models import Ledger

FAST = Retry(max_attempts=3, base=0.05, jitter=False)

body: Callable[[], Any] = lambda: None  # noqa: E731
abody: Callable[[], Awaitable[Any]] = None  # type: ignore[assignment]


def done(text: str) -> str:
    """A step's effect: one line in the ledger, in the jobs' own database."""
    Ledger.objects.using(conf.current().database).create(note=text)
    return text


def effects() -> list[str]:
    """What the steps have done, in order."""
    lines = Ledger.objects.using(conf.current().database).order_by("id")
    return list(lines.values_list("note", flat=True))


@job(idempotency_key=PER_CALL, retry=FAST)
def stepping() -> Any:
    """Runs the body that the test has set."""
    return body()


@job(idempotency_key=PER_CALL, retry=FAST)
async def astepping() -> Any:
    """Runs the async body that the test has set."""
    return await abody()


@job(idempotency_key="tenanted:{tenant}", tenant="{tenant}", retry=FAST)
def tenanted_stepping(tenant: str) -> Any:
    """The same for a tenant."""
    return body()


@job(idempotency_key=PER_CALL, retry=FAST)
def pays(amount: int) -> str:
    """Moves money in an atomic step, between steps that move none."""
    step.run("before", str, amount)
    step.run("move", move, amount, atomic=conf.current().database)
    return step.run("after", str, "paid")


@job(idempotency_key=PER_CALL, retry=FAST)
def pays_in_a_block(amount: int) -> str:
    """Moves money in a fenced block that remembers that it has."""
    with current_job().atomic():
        current_job().progress("paying")
        step.run("move", move, amount, atomic=conf.current().database)
    return "paid"
