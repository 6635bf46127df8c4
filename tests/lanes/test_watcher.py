"""The watcher: what running lane jobs are told, and how often."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest
import redis

from django_jobs.lanes import Lane, advice
from django_jobs.lanes.advice import Claim
from django_jobs.loops.runner import LoopThread
from django_jobs.loops.watcher import Watcher
from tests import servers
from tests.lanes.looking import held_by


class Bodies:
    """The running jobs of a process, and the rows that they would be asked about."""

    def __init__(self, *claims: Claim) -> None:
        self.claims = list(claims)
        self.looked: list[set[UUID]] = []
        self.ours: set[UUID] = set()
        self.told = threading.Event()

    def running(self) -> list[Claim]:
        return self.claims

    def look(self, ids: Collection[UUID]) -> Collection[UUID]:
        self.looked.append(set(ids))
        self.told.set()
        return self.ours & set(ids)

    def watcher(self) -> Watcher:
        return Watcher(self.running, self.look)


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def claim(token: int, key: str) -> Claim:
    return Claim("index", "", key, uuid.uuid4(), token)


def test_a_run_that_nobody_supersedes_is_never_looked_at(
    lane_server: servers.RedisServer, raw: redis.Redis, key: str
) -> None:
    """54, 55, 56"""
    bodies = Bodies(claim(1, key))
    watcher = bodies.watcher()
    assert watcher.tick() == 0.5
    raw.delete(Lane("index", "", key).keys().lane)
    watcher.tick()
    assert held_by(Lane("index", "", key)) == str(bodies.claims[0].job_id)
    assert bodies.looked == []


def test_a_superseded_run_is_looked_at_once(lane_server: servers.RedisServer, key: str) -> None:
    """53, 60"""
    old, other = claim(1, key), claim(1, key + "x")
    bodies = Bodies(old, other)
    watcher = bodies.watcher()
    watcher.tick()
    advice.claim_many([claim(2, key)])
    for _ in range(3):
        watcher.tick()
    assert bodies.looked == [{old.job_id}]


def test_a_row_that_still_is_ours_has_its_lane_claimed_anew_and_is_watched_on(
    lane_server: servers.RedisServer, key: str
) -> None:
    """The key belongs to another history; a real supersession afterwards is told at once."""
    ours = claim(7, key)
    bodies = Bodies(ours)
    watcher = bodies.watcher()
    advice.claim_many([claim(1000, key)])
    bodies.ours = {ours.job_id}
    watcher.tick()
    assert held_by(Lane("index", "", key)) == str(ours.job_id)
    bodies.ours = set()
    advice.claim_many([claim(8, key)])
    watcher.tick()
    watcher.tick()
    assert bodies.looked == [{ours.job_id}, {ours.job_id}]


def test_a_look_that_fails_is_repeated(lane_server: servers.RedisServer, key: str) -> None:
    bodies = Bodies(claim(1, key))
    fails = [ConnectionError("the database is away")]

    def look(ids: Collection[UUID]) -> Collection[UUID]:
        if fails:
            raise fails.pop()
        return bodies.look(ids)

    watcher = Watcher(bodies.running, look)
    advice.claim_many([claim(2, key)])
    with pytest.raises(ConnectionError):
        watcher.tick()
    watcher.tick()
    assert len(bodies.looked) == 1


def test_a_run_that_begins_again_is_told_again(lane_server: servers.RedisServer, key: str) -> None:
    old = claim(1, key)
    bodies = Bodies(old)
    watcher = bodies.watcher()
    advice.claim_many([claim(2, key)])
    watcher.tick()
    bodies.claims = []
    assert watcher.tick() == 0.5
    bodies.claims = [old]
    watcher.tick()
    assert bodies.looked == [{old.job_id}, {old.job_id}]


def test_nothing_is_told_after_a_stop_while_a_beat_is_on_its_way(
    lane_server: servers.RedisServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """61"""
    bodies = Bodies(claim(1, key))
    watcher = bodies.watcher()
    advice.claim_many([claim(2, key)])
    answered, stopped, real = threading.Event(), threading.Event(), advice.beat

    def late(claims: Any) -> set[UUID]:
        answer = real(claims)
        answered.set()
        assert stopped.wait(10)
        return answer

    monkeypatch.setattr(advice, "beat", late)
    beating = threading.Thread(target=watcher.tick)
    beating.start()
    assert answered.wait(10)
    watcher.stop()
    stopped.set()
    beating.join()
    assert watcher.tick() == 0.5
    assert bodies.looked == []


def test_without_lane_jobs_nothing_is_asked(
    signals: Any, private_redis: servers.RedisServer
) -> None:
    private_redis.stop()
    signals(private_redis)
    assert Bodies().watcher().tick() == 0.5
    assert advice.available()


def test_a_server_that_is_away_stops_nobody(
    signals: Any, private_redis: servers.RedisServer, key: str
) -> None:
    """62"""
    signals(private_redis)
    bodies = Bodies(claim(1, key))
    watcher = bodies.watcher()
    watcher.tick()
    private_redis.stop()
    for _ in range(3):
        assert watcher.tick() == 0.5
    assert bodies.looked == []


def test_a_running_job_hears_of_a_newer_one_within_two_polls(
    lane_server: servers.RedisServer, settings: Any, key: str
) -> None:
    """53, R2"""
    old = claim(1, key)
    bodies = Bodies(old)
    loop = LoopThread("watcher", bodies.watcher().tick, alias="default")
    advice.start(old)
    loop.start()
    try:
        advice.claim_many([claim(2, key)])
        began = time.monotonic()
        assert bodies.told.wait(5)
        assert time.monotonic() - began < 1.2
    finally:
        loop.stop()
        loop.join()
