"""What a lane shows to whoever looks at its keys."""

from __future__ import annotations

import redis

from django_jobs.lanes import Lane


def held_by(lane: Lane) -> str | None:
    found = lane.holder()
    return found.holder if found else None


def tombstone(lane: Lane, raw: redis.Redis, holder: str) -> str | None:
    """Who superseded ``holder``."""
    value = raw.get(lane.keys().tombstone(holder))
    return None if value is None else str(value).split()[1]


def lapse(lane: Lane, raw: redis.Redis, token: int) -> None:
    """Have the claim with ``token`` expire, as after 300 seconds without a beat."""
    field = f"{token:019d}"
    value = str(raw.hget(lane.keys().lane, field))
    raw.hset(lane.keys().lane, field, " ".join(["1", *value.split(" ")[1:]]))
