"""RELEASE takes one claim out as if it had never been."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
import redis

from django_jobs.lanes import (
    Claimed,
    Displaced,
    Held,
    Lane,
    Release,
    Released,
    Started,
    Superseded,
)
from tests import servers
from tests.lanes.looking import held_by, lapse, tombstone


def test_a_release_by_a_stranger_changes_nothing(lane: Lane, raw: redis.Redis) -> None:
    """23, 37"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    assert lane.release("c", 3) == Released(Release.NOT_MINE)
    assert lane.release("a", 2) == Released(Release.NOT_MINE)
    assert held_by(lane) == "b"
    assert tombstone(lane, raw, "a") == "b"


def test_a_release_by_the_only_holder_vacates_the_lane(lane: Lane) -> None:
    """24, 37"""
    lane.claim("a", 1)
    assert lane.release("a", 1) == Released(Release.VACATED)
    assert held_by(lane) is None


def test_a_release_restores_the_previous_holder_with_its_own_expiry(
    lane: Lane, raw: redis.Redis
) -> None:
    """25, 26, 31, 37, R5, T1"""
    lane.claim("a", 1, delay=600)
    claimed = lane.claim("b", 2)
    assert isinstance(claimed, Claimed)
    assert lane.release("b", 2, claimed.previous) == Released(Release.RESTORED, "a")
    holder = lane.holder()
    assert holder is not None
    assert (holder.holder, holder.token) == ("a", 1)
    assert 898 < holder.expires_in <= 900
    assert 898 < raw.ttl(lane.keys().lane) <= 900
    assert tombstone(lane, raw, "a") is None
    assert lane.beat("a", 1) == Held()


def test_a_release_beneath_a_newer_holder_repoints_the_tombstone(
    lane: Lane, raw: redis.Redis
) -> None:
    """27, 34, 37, R9, T2"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    assert tombstone(lane, raw, "a") == "b"
    lane.claim("c", 3)
    assert lane.release("b", 2, "a") == Released(Release.REPOINTED, "c")
    assert held_by(lane) == "c"
    assert tombstone(lane, raw, "b") == "c"
    assert tombstone(lane, raw, "a") == "c"


def test_a_release_of_the_newest_leaves_older_supersessions_alone(
    lane: Lane, raw: redis.Redis
) -> None:
    """28"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    lane.claim("c", 3)
    assert lane.release("c", 3, "b") == Released(Release.RESTORED, "b")
    assert held_by(lane) == "b"
    assert tombstone(lane, raw, "b") is None
    assert tombstone(lane, raw, "a") == "b"


@pytest.mark.parametrize("order", list(itertools.permutations("bc")), ids="".join)
def test_when_all_newer_claims_are_released_the_first_holds_again(
    lane: Lane, raw: redis.Redis, order: tuple[str, ...]
) -> None:
    """29, R9"""
    lane.claim("a", 1)
    tokens, previous = {"b": 2, "c": 3}, {"b": "a", "c": "b"}
    for holder, token in tokens.items():
        lane.claim(holder, token)
    for holder in order:
        lane.release(holder, tokens[holder], previous[holder])
    assert held_by(lane) == "a"
    assert tombstone(lane, raw, "a") is None
    assert lane.start("a", 1) == Started()


def test_a_release_does_not_resurrect_a_claim_that_lapsed(lane: Lane, raw: redis.Redis) -> None:
    """30"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    lapse(lane, raw, 1)
    assert lane.release("b", 2, "a") == Released(Release.VACATED)
    assert held_by(lane) is None
    assert tombstone(lane, raw, "a") is None, "what never was supersedes nobody"


def test_the_previous_holder_is_freed_even_when_the_lane_was_lost(
    lane: Lane, raw: redis.Redis
) -> None:
    """25: the tombstone outlives the lane's key by days."""
    lane.claim("a", 1)
    lane.claim("b", 2)
    raw.delete(lane.keys().lane)
    assert lane.release("b", 2, "a") == Released(Release.NOT_MINE)
    assert tombstone(lane, raw, "a") is None


def test_the_previous_holder_stays_superseded_by_a_third_when_the_lane_was_lost(
    lane: Lane, raw: redis.Redis
) -> None:
    """27, 34"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    raw.delete(lane.keys().lane)
    lane.claim("c", 3)
    lane.release("b", 2, "a")
    assert tombstone(lane, raw, "a") == "c"


def test_a_third_claim_after_a_release_displaces_the_restored_holder(
    lane: Lane, raw: redis.Redis
) -> None:
    """32, R8, S21"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    lane.release("b", 2, "a")
    assert lane.claim("c", 3) == Claimed("a")
    assert tombstone(lane, raw, "a") == "c"


def test_a_release_of_a_claim_on_ones_own_lane_does_not_vacate_it(
    lane: Lane, raw: redis.Redis
) -> None:
    """35, S12"""
    lane.claim("a", 1)
    assert lane.claim("a", 2) == Claimed("a")
    assert lane.release("a", 2, "a") == Released(Release.RESTORED, "a")
    assert lane.start("a", 1) == Started()


def test_a_released_newer_life_is_superseded_as_the_older_one_was(
    lane: Lane, raw: redis.Redis
) -> None:
    """35"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    lane.claim("a", 3)
    assert lane.release("a", 3, "b") == Released(Release.RESTORED, "b")
    assert tombstone(lane, raw, "b") is None
    assert tombstone(lane, raw, "a") == "b"


def test_an_older_life_that_is_told_late_is_there_when_the_newer_is_released(lane: Lane) -> None:
    """35"""
    lane.claim("a", 4)
    lane.claim("d", 5)
    assert lane.claim("a", 1) == Displaced("d")
    lane.release("d", 5)
    assert lane.release("a", 4) == Released(Release.RESTORED, "a")
    holder = lane.holder()
    assert holder is not None
    assert holder.token == 1


def test_a_second_release_is_told_that_there_is_nothing(lane: Lane) -> None:
    """36"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    assert lane.release("b", 2).outcome is Release.RESTORED
    assert lane.release("b", 2).outcome is Release.NOT_MINE
    assert held_by(lane) == "a"


def test_a_claim_that_arrives_after_its_own_release_is_void(lane: Lane, raw: redis.Redis) -> None:
    """R12: its reply was lost, and its bytes waited in a server that hung."""
    lane.claim("a", 1)
    assert lane.release("b", 2) == Released(Release.NOT_MINE)
    assert lane.claim("b", 2) == Displaced(None)
    assert held_by(lane) == "a"
    assert tombstone(lane, raw, "a") is None
    assert lane.claim("b", 3) == Claimed("a"), "a new token is a new claim"


def test_who_withdrew_is_not_buried_by_what_comes_after(lane: Lane, raw: redis.Redis) -> None:
    lane.claim("b", 2)
    lane.release("b", 2)
    lane.claim("c", 3)
    assert tombstone(lane, raw, "b") is None


def test_a_release_of_a_finished_claim_is_told_that_there_is_nothing(
    lane: Lane, raw: redis.Redis
) -> None:
    lane.claim("a", 1)
    lane.claim("b", 2)
    lane.finish("b", 2)
    assert lane.release("b", 2, "a") == Released(Release.NOT_MINE)
    assert tombstone(lane, raw, "a") == "b"
    assert lane.start("a", 1) == Superseded("b")


def test_a_release_of_a_lapsed_claim_is_told_that_there_is_nothing(
    lane: Lane, raw: redis.Redis
) -> None:
    """23"""
    lane.claim("a", 1)
    lapse(lane, raw, 1)
    assert lane.release("a", 1) == Released(Release.NOT_MINE)


def test_a_release_leaves_the_tombstone_of_another_although_the_lane_was_lost(
    lane: Lane, raw: redis.Redis
) -> None:
    """34"""
    lane.claim("a", 1)
    lane.claim("c", 3)
    raw.delete(lane.keys().lane)
    lane.release("b", 2, "a")
    assert tombstone(lane, raw, "a") == "c"


def test_a_release_that_fails_is_logged_with_its_lane_and_raises_nothing(
    signals: Any, private_redis: servers.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """33, S14"""
    signals(private_redis)
    lane = Lane("index", "acme", "doc 7")
    lane.claim("a", 1)
    private_redis.stop()
    with caplog.at_level(logging.ERROR, "django_jobs.lanes"):
        assert lane.release("a", 1) == Released(Release.UNKNOWN)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "name='index', tenant='acme', key='doc 7'" in record.getMessage()
