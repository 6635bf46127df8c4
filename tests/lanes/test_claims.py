"""CLAIM: who holds a lane, and who is told to stop."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
import redis

from django_jobs.errors import LaneKeyTaken
from django_jobs.lanes import Claimed, Displaced, Held, Lane, Started, Superseded
from tests import servers
from tests.lanes.looking import held_by, tombstone


def test_the_first_claim_takes_a_vacant_lane(lane: Lane) -> None:
    """3"""
    assert lane.claim("a", 1) == Claimed(None)
    assert held_by(lane) == "a"


def test_a_newer_claim_takes_the_lane_and_tells_whom_it_displaced(
    lane: Lane, raw: redis.Redis
) -> None:
    """4, 5"""
    lane.claim("a", 1)
    assert lane.claim("b", 2) == Claimed("a")
    assert held_by(lane) == "b"
    assert tombstone(lane, raw, "a") == "b"
    assert tombstone(lane, raw, "b") is None


def test_a_tombstone_lasts_seven_days_beyond_the_displaced_claim(
    lane: Lane, raw: redis.Redis
) -> None:
    """6, R21"""
    lane.claim("a", 1, delay=1000)
    lane.claim("b", 2)
    assert 7 * 86400 + 1290 < raw.ttl(lane.keys().tombstone("a")) <= 7 * 86400 + 1300
    assert lane.keys().tombstone("a").endswith("}:a")
    assert ":lane:superseded:{" in lane.keys().tombstone("a")


def test_nobody_sees_the_new_holder_without_the_tombstone(
    lane: Lane, lane_server: servers.RedisServer
) -> None:
    """7"""
    over, torn = threading.Event(), []
    keys = lane.keys()

    def watch() -> None:
        with redis.Redis.from_url(lane_server.url(), decode_responses=True) as client:
            while not over.is_set():
                both = client.pipeline(transaction=True)
                claims, stone = both.hkeys(keys.lane).get(keys.tombstone("a")).execute()
                if (len(claims) == 2) is not (stone is not None):
                    torn.append((claims, stone))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with redis.Redis.from_url(lane_server.url()) as client:
        for _ in range(50):
            client.delete(keys.lane, keys.tombstone("a"))
            lane.claim("a", 1)
            lane.claim("b", 2)
    over.set()
    watcher.join()
    assert not torn


def test_claiming_again_is_no_supersession_of_oneself(lane: Lane, raw: redis.Redis) -> None:
    """8"""
    lane.claim("a", 1)
    assert lane.claim("a", 2) == Claimed("a")
    assert held_by(lane) == "a"
    assert tombstone(lane, raw, "a") is None


@pytest.mark.parametrize(
    ("delay", "seconds"), [(60, 360), (0.001, 301), (0, 300), (None, 300), (1.5, 302)]
)
def test_a_claim_lasts_300_seconds_and_the_delay_rounded_up(
    lane: Lane, raw: redis.Redis, delay: float | None, seconds: int
) -> None:
    """9, 11"""
    lane.claim("a", 1, delay)
    assert (seconds - 1) * 1000 < raw.pttl(lane.keys().lane) <= seconds * 1000


def test_a_claim_for_the_far_future_is_taken(lane: Lane) -> None:
    assert lane.claim("a", 1, delay=1e300) == Claimed(None)
    assert held_by(lane) == "a"


def test_claiming_again_without_a_delay_shortens_the_claim(lane: Lane, raw: redis.Redis) -> None:
    """10"""
    lane.claim("a", 1, delay=3600)
    lane.claim("a", 1)
    assert 299_000 < raw.pttl(lane.keys().lane) <= 300_000


@pytest.mark.parametrize(
    "delay", [-1, -0.001, math.nan, math.inf, -math.inf, "60", True, [1]], ids=repr
)
def test_a_delay_that_is_no_time_is_refused_before_anything_is_sent(
    lane: Lane, raw: redis.Redis, delay: Any
) -> None:
    """12"""
    with pytest.raises(ValueError, match="delay is"):
        lane.claim("a", 1, delay)
    assert not raw.exists(lane.keys().lane)


@pytest.mark.parametrize("token", [-1, 1.0, "1", None, True, 2**63], ids=repr)
def test_a_token_that_is_no_64_bit_number_is_refused(lane: Lane, token: Any) -> None:
    with pytest.raises(ValueError, match="token is"):
        lane.claim("a", token)


@pytest.mark.parametrize("holder", ["", None, 7, "x" * 513, "\ud800"], ids=ascii)
def test_a_claim_without_a_holder_is_refused(lane: Lane, holder: Any) -> None:
    """52"""
    with pytest.raises(ValueError, match="holder"):
        lane.start(holder, 1)


def test_tokens_beyond_what_a_double_tells_apart_are_ordered(lane: Lane, raw: redis.Redis) -> None:
    """A Lua number loses integers above 2**53."""
    lane.claim("a", 2**63 - 2)
    assert lane.claim("b", 2**63 - 1) == Claimed("a")
    assert lane.claim("c", 2**53 + 1) == Displaced("b")
    assert lane.claim("d", 9) == Displaced("b")
    assert held_by(lane) == "b"
    assert tombstone(lane, raw, "d") == "c"


def test_a_claim_that_is_repeated_hears_the_same_again(lane: Lane) -> None:
    """19"""
    lane.claim("a", 1)
    assert lane.claim("b", 2) == Claimed("a")
    assert lane.claim("b", 2) == Claimed("a")


def test_a_newer_life_is_free_of_the_tombstone_of_an_older_one(
    lane: Lane, raw: redis.Redis
) -> None:
    """20"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    assert lane.claim("a", 3) == Claimed("b")
    assert tombstone(lane, raw, "a") is None
    assert tombstone(lane, raw, "b") == "a"
    assert lane.start("a", 3) == Started()
    assert lane.start("b", 2) == Superseded("a")


def test_an_older_claim_changes_neither_the_holder_nor_its_tombstone(
    lane: Lane, raw: redis.Redis
) -> None:
    """21, 49, 50: order is the token's, whenever and wherever a claim is sent."""
    lane.claim("b", 2)
    assert lane.claim("a", 1) == Displaced("b")
    assert held_by(lane) == "b"
    assert tombstone(lane, raw, "b") is None
    assert tombstone(lane, raw, "a") == "b"


def test_a_tombstone_names_the_next_newer_claim_whenever_that_arrives(
    lane: Lane, raw: redis.Redis
) -> None:
    lane.claim("a", 1)
    lane.claim("c", 3)
    assert tombstone(lane, raw, "a") == "c"
    lane.claim("b", 2)
    assert tombstone(lane, raw, "a") == "b"


@pytest.mark.parametrize("kind", ["text", "list", "fields"])
def test_a_foreign_key_is_an_error_that_names_it(lane: Lane, raw: redis.Redis, kind: str) -> None:
    """22"""
    key = lane.keys().lane
    if kind == "text":
        raw.set(key, "x")
    elif kind == "list":
        raw.lpush(key, "x")
    else:
        raw.hset(key, mapping={"foo": "bar"})
    for call in (lane.claim, lane.start, lane.beat, lane.finish):
        with pytest.raises(LaneKeyTaken) as caught:
            call("a", 1)
        assert caught.value.key == key
    raw.delete(key)
    assert lane.claim("a", 1) == Claimed(None)


def test_a_foreign_tombstone_is_an_error_that_names_it(lane: Lane, raw: redis.Redis) -> None:
    """22"""
    raw.lpush(lane.keys().tombstone("a"), "x")
    with pytest.raises(LaneKeyTaken, match="superseded"):
        lane.claim("a", 1)


def test_two_holders_of_one_token_displace_nobody(lane: Lane, raw: redis.Redis) -> None:
    """After a restore of the database a token may be drawn again: the second one is told to look,
    and nobody gets a tombstone."""
    lane.claim("a", 5)
    assert lane.claim("b", 5) == Displaced("a")
    assert lane.start("b", 5) == Superseded("a")
    assert lane.beat("a", 5) == Held()
    assert tombstone(lane, raw, "a") is None
    assert tombstone(lane, raw, "b") is None


def test_a_token_that_ended_with_another_holder_is_told_to_look(lane: Lane) -> None:
    lane.claim("a", 5)
    lane.finish("a", 5)
    assert lane.claim("b", 5) == Displaced("a")
    assert lane.start("b", 5) == Superseded("a")


def test_a_lane_remembers_the_newest_claims_only(lane: Lane, raw: redis.Redis) -> None:
    """A lane whose runs never complete must not make each call dearer."""
    for token in range(1, 101):
        lane.claim(f"job {token}", token)
    assert raw.hlen(lane.keys().lane) == 16
    assert held_by(lane) == "job 100"
    assert lane.start("job 3", 3) == Superseded("job 4")
