"""What a run measures, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks.raw import Raw


@dataclass(frozen=True)
class Sizes:
    singles: int = 1_000
    inside: int = 1_000
    many: int = 10_000
    drained: int = 10_000
    pickups: int = 200
    steps: int = 500
    sleepers: int = 10_000
    idle_seconds: float = 15.0
    finished: int = 1_000_000
    future: int = 100_000
    pinned: int = 200_000
    pinned_seconds: float = 60.0
    buffered_small: int = 10_000
    buffered: int = 1_000_000
    buffer_tenants: int = 10_000
    buffer_chunks: int = 20
    backfilled: int = 1_000_000


QUICK = Sizes(
    singles=50,
    inside=100,
    many=600,
    drained=500,
    pickups=10,
    steps=20,
    sleepers=50,
    idle_seconds=1.0,
    finished=1_000,
    future=1_000,
    pinned=500,
    pinned_seconds=0.0,
    buffered_small=1_000,
    buffered=2_000,
    buffer_tenants=100,
    buffer_chunks=2,
    backfilled=5_000,
)


@dataclass
class Bench:
    """One run: a raw session, the sizes, and whether the server counts statements."""

    url: str
    raw: Raw
    sizes: Sizes
    rounds: int
    threads: int
    quick: bool
    statements: bool
    bare: float | None = None
    """The last rate of a worker on an empty table."""
