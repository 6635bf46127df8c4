"""Read by mypy, never run: calls that are right, and calls that are wrong and say so."""

from __future__ import annotations

from decimal import Decimal
from typing import reveal_type

from django_jobs import PER_CALL, enqueue, enqueue_many, job, step


@job(idempotency_key="charge:{order_id}", tenant=lambda shop: f"shop:{shop}")
def charge(order_id: int, shop: str, *, amount: Decimal = Decimal(0)) -> str:
    return f"{order_id} {amount}"


@job(idempotency_key=PER_CALL)
async def notify(order_id: int) -> bool:
    return bool(order_id)


async def right() -> None:
    reveal_type(charge)  # R: Definition[[order_id: int, shop: str, *, amount: Decimal =], str]
    reveal_type(charge(1, "a"))  # R: str
    reveal_type(await notify(1))  # R: bool
    reveal_type(charge.enqueue(order_id=1, shop="a"))  # R: Enqueued
    reveal_type(await charge.aenqueue(1, "a"))  # R: Enqueued
    reveal_type(enqueue(charge, 1, shop="a"))  # R: Enqueued
    reveal_type(charge.enqueue(1, "a").deduped)  # R: bool | None
    reveal_type(charge.using(delay=3, on_conflict="error").enqueue(1, "a").job_id)  # R: UUID | None
    reveal_type(charge.call(1, "a"))  # R: Call
    enqueue_many([charge.call(1, "a"), notify.call(2)])


def fetch(number: int) -> str:
    return str(number)


async def afetch(number: int) -> bytes:
    return bytes(number)


async def steps() -> None:
    reveal_type(step.run("a", fetch, 1))  # R: str
    reveal_type(step.run("a", fetch, number=1, atomic=True))  # R: str
    reveal_type(await step.arun("a", afetch, 1))  # R: bytes
    reveal_type(step.parallel(lambda: 1, lambda: "a"))  # R: tuple[int, str]
    reveal_type(step.wait_for_event("a", type=int))  # R: int
    reveal_type(step.wait_for_event("a", timeout=5, default=None, type=int))  # R: int | None
    reveal_type(step.wait_for_jobs("a", []))  # R: list[JobEnd]
    reveal_type(step.first("a", b=step.Timer(1), c=step.Event("c")))  # R: Winner
    step.sleep(5)
    step.sleep("a", 5)
    step.sleep("a")  # E: No overload
    step.run("a", 5)  # E: expected "Callable
    step.first("a", b=5)  # E: incompatible type "int"


def wrong() -> None:
    charge.enqueue(ordr_id=1, shop="a")  # E: ordr_id
    charge.enqueue("1", "a")  # E: incompatible type "str"; expected "int"
    charge.enqueue(1)  # E: shop
    charge.enqueue(1, "a", Decimal(1))  # E: positional
    charge.call(order_id=1, shop=2)  # E: incompatible type "int"; expected "str"
    charge.using(delay=3).enqueue(1, "a", amount=1.5)  # E: incompatible type "float"
    enqueue(charge, ordr_id=1, shop="a")  # E: ordr_id
    enqueue(charge, order_id="1", shop="a")  # E: incompatible type "str"; expected "int"
    charge(1, shop=None)  # E: incompatible type "None"
    charge.using(on_conflict="replace")  # E: on_conflict
