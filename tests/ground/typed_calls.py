"""Read by mypy, never run: calls that are right, and calls that are wrong and say so."""

from __future__ import annotations

from decimal import Decimal
from typing import reveal_type

from django_jobs import PER_CALL, enqueue, enqueue_many, job


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
