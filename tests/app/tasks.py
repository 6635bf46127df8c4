"""Jobs with steps. Each lets a test say what its body does, in its own process."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

from django.db import connection

from django_jobs import PER_CALL, Retry, conf, current_job, job, step
from tests.app.jobs import move, note, record
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


@job(idempotency_key=PER_CALL, retry=FAST)
def naps(seconds: float) -> None:
    """Sleeps between two effects."""
    step.run("before", note, "before")
    step.sleep("nap", seconds)
    step.run("after", note, "after")


@job(idempotency_key=PER_CALL, retry=FAST)
def awaits_approval(key: str) -> str:
    """Waits for an event, then has an effect."""
    by: str = step.wait_for_event("approved", match=key, type=str)
    step.run("told", note, f"{key} by {by}")
    return by


@job(idempotency_key=PER_CALL, retry=FAST)
async def acollects(seconds: float) -> list[str]:
    """Async steps, at once and one after the other, with a sleep and an event."""

    async def fetch(name: str) -> str:
        await Ledger.objects.acreate(note=f"fetch {name}")
        return name

    both = await step.aparallel(
        lambda: step.arun("a", fetch, "a"), lambda: step.arun("b", fetch, "b")
    )
    await step.asleep("nap", seconds)
    approved = await step.await_event("approved", timeout=seconds, default="nobody")
    return [*both, approved]


@job(idempotency_key=PER_CALL, retry=FAST)
def stuck_in_sql() -> str:
    """Its first step is stuck in SQL for longer than it may be, once."""

    def query() -> str:
        connection.cursor().execute("SELECT pg_sleep(%s)", (20 * (current_job().attempt == 1),))
        return "answered"

    step.run("before", note, "before")
    return step.run("query", query, timeout=0.3)


@job(idempotency_key=PER_CALL, retry=Retry(max_attempts=1))
def steps_in_a_bare_thread() -> None:
    """Calls a step in a thread that does not know the job."""
    failures: list[Exception] = []

    def thread() -> None:
        try:
            step.run("lost", str)
        except Exception as error:
            failures.append(error)

    started = threading.Thread(target=thread)
    started.start()
    started.join()
    raise failures[0]


@job(idempotency_key=PER_CALL, retry=FAST)
def fans_out(count: int) -> list[Any]:
    """Enqueues children exactly once, and waits for them without a thread."""

    def children() -> list[str]:
        return [str(record.enqueue(f"child {n}").id) for n in range(count)]

    ends = step.wait_for_jobs("children", step.run("enqueue", children, atomic=True))
    return [end.result for end in ends]


@job(idempotency_key=PER_CALL, retry=FAST)
def pays_twice_if_killed(amount: int) -> None:
    """Moves money in a step that is not atomic."""
    step.run("move", move, amount)
    step.sleep("nap", 3600)
