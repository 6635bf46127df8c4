"""Lanes: how soon an older run stops, and what a lane adds to an enqueue."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import transaction

from django_jobs import conf, enqueue
from django_jobs.lanes import advice
from django_jobs.lanes.advice import Claim
from tests import servers
from tests.benchmarks import raw as plain
from tests.benchmarks.enqueueing import in_turns
from tests.benchmarks.figures import Aim, line, note, section
from tests.benchmarks.ground import Worker
from tests.benchmarks.jobs import in_lane, noop, watched
from tests.benchmarks.plan import Bench
from tests.benchmarks.waiting import percentiles

CLAIMS = 100


def lanes(bench: Bench) -> None:
    """Without signals, and with them on a server of our own."""
    _costs(bench)
    count = bench.sizes.pickups // 4
    section(f"an older run stops, {count} times: publish committed → told, ms")
    without = _stops(bench, count)
    with signals():
        told = _stops(bench, count)
        beats = _beats(bench.rounds)
    percentiles("without signals", without)
    percentiles("with signals", told, without, (Aim(600, at_most=True), None, None))
    note("without: woken by NOTIFY; where that is mute, a look at the rows each half second")
    line(f"beats of {CLAIMS} lane jobs, one round trip, ms", beats)


@contextmanager
def signals() -> Iterator[None]:
    """A server for the signals, for this process and the workers that it starts."""
    server = servers.redis_or_valkey()
    os.environ["BENCH_REDIS_URL"] = server.url()
    from django.conf import settings

    settings.CACHES["lanes"] = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": server.url(),
    }
    conf.use(dataclasses.replace(conf.current(), lanes_cache="lanes"))
    try:
        yield
    finally:
        conf.use(None)
        del os.environ["BENCH_REDIS_URL"]
        server.close()


def _stops(bench: Bench, count: int) -> list[float]:
    plain.empty(bench.raw)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        told.touch()
        os.environ["BENCH_STOPS"] = str(told)
        published: list[float] = []
        with Worker(f"--threads={bench.threads}") as worker:
            worker.until_listening(bench.raw)
            for number in range(count + 1):
                with transaction.atomic():
                    transaction.on_commit(lambda: published.append(time.monotonic()))
                    enqueue(watched, number)
                _until(lambda n=number: f"start {n} " in told.read_text())  # type: ignore[misc]
        lines = [text.split() for text in told.read_text().splitlines()]
        at = {int(number): float(when) for word, number, when in lines if word == "stop"}
    return [(at[number] - published[number + 1]) * 1000 for number in range(count)]


def _until(happened: object) -> None:
    deadline = time.monotonic() + 30
    while not happened():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise RuntimeError("the worker did not run it within 30 s")
        time.sleep(0.005)


def _costs(bench: Bench) -> None:
    inside, singles = bench.sizes.inside, bench.sizes.singles
    section(
        f"what a lane adds: {inside:,} staged in one transaction, {singles:,} published at once"
    )

    def staged(job: object) -> float:
        began = time.perf_counter()
        with transaction.atomic():
            for number in range(inside):
                enqueue(job, number)  # type: ignore[arg-type]
        return time.perf_counter() - began

    def direct(job: object) -> float:
        began = time.perf_counter()
        for number in range(singles):
            enqueue(job, number)  # type: ignore[arg-type]
        return time.perf_counter() - began

    rounds = in_turns(
        bench,
        lambda: staged(noop),
        lambda: staged(in_lane),
        lambda: direct(noop),
        lambda: direct(in_lane),
    )
    plain_staged, lane_staged, plain_direct, lane_direct = rounds
    line("staged, no lane, calls/s", [inside / s for s in plain_staged])
    beside = [inside / s for s in plain_staged]
    line("staged, in a lane", [inside / s for s in lane_staged], beside=beside, aim=Aim(0.8))
    line("at once, no lane, calls/s", [singles / s for s in plain_direct])
    beside = [singles / s for s in plain_direct]
    line(
        "at once, in a lane",
        [singles / s for s in lane_direct],
        beside=beside,
        aim=Aim(0.5),
    )


def _beats(rounds: int) -> list[float]:
    claims = [Claim("bench", "", str(n), uuid.uuid4(), n + 1) for n in range(CLAIMS)]
    advice.claim_many(claims)
    took = []
    for _ in range(max(rounds, 3)):
        began = time.perf_counter()
        assert advice.beat(claims) == set()
        took.append((time.perf_counter() - began) * 1000)
    return took
