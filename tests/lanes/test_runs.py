"""START, BEAT and FINISH: what a run hears of newer work."""

from __future__ import annotations

import redis

from django_jobs.lanes import Claimed, Displaced, Held, Lane, Started, Superseded, Usurped
from tests.lanes.looking import held_by, lapse, tombstone


def test_a_start_on_a_vacant_lane_takes_it(lane: Lane) -> None:
    """38, S8"""
    assert lane.start("a", 1) == Started()
    assert held_by(lane) == "a"


def test_a_start_beneath_a_newer_holder_is_superseded_and_buries_itself(
    lane: Lane, raw: redis.Redis
) -> None:
    """39, 44, R18, T5"""
    lane.claim("b", 2)
    assert lane.start("a", 1) == Superseded("b")
    assert held_by(lane) == "b"
    assert tombstone(lane, raw, "b") is None
    assert tombstone(lane, raw, "a") == "b"


def test_a_start_over_an_older_holder_takes_the_lane_and_buries_it(
    lane: Lane, raw: redis.Redis
) -> None:
    """40, 41, R15, S8, S20"""
    lane.start("a", 1)
    assert lane.start("b", 2) == Started()
    assert held_by(lane) == "b"
    assert tombstone(lane, raw, "a") == "b"
    assert lane.beat("a", 1) == Usurped("b")


def test_a_tombstone_stops_a_start_although_the_lane_was_lost(lane: Lane, raw: redis.Redis) -> None:
    """42, 43, S6"""
    lane.claim("a", 1)
    lane.claim("b", 2)
    raw.delete(lane.keys().lane)
    assert lane.start("a", 1) == Superseded("b")
    assert held_by(lane) is None, "who may not start holds nothing"


def test_a_claim_that_lapsed_supersedes_older_ones_still(lane: Lane, raw: redis.Redis) -> None:
    """45, R15, R16: nobody beats for it, but its job was the newer one."""
    lane.claim("b", 2, delay=600)
    lane.claim("c", 3)
    lane.release("c", 3)
    lapse(lane, raw, 2)
    assert held_by(lane) is None
    assert lane.start("a", 1) == Superseded("b")


def test_a_lapsed_holder_is_buried_by_the_next_claim(lane: Lane, raw: redis.Redis) -> None:
    """R16: the lane was vacant when the newer one came."""
    lane.claim("a", 1)
    lane.claim("x", 9)
    lane.release("x", 9)
    lapse(lane, raw, 1)
    assert lane.claim("b", 2) == Claimed(None)
    assert tombstone(lane, raw, "a") == "b"
    assert lane.start("a", 1) == Superseded("b")


def test_a_finished_newer_run_supersedes_an_older_one_that_never_claimed(lane: Lane) -> None:
    """45, 75"""
    lane.claim("b", 2)
    lane.finish("b", 2)
    assert lane.start("a", 1) == Superseded("b")
    assert held_by(lane) is None


def test_a_start_renews_the_holders_own_claim(lane: Lane, raw: redis.Redis) -> None:
    """46, 73, R23"""
    lane.claim("a", 1)
    raw.pexpire(lane.keys().lane, 500)
    assert lane.start("a", 1) == Started()
    assert raw.pttl(lane.keys().lane) > 299_000


def test_ids_say_nothing_about_age(lane: Lane) -> None:
    """48, R22, S9, S22: only the token does."""
    lane.claim("zzz", 1)
    assert lane.claim("repeat:AAA:0", 2) == Claimed("zzz")
    assert lane.claim("7", 3) == Claimed("repeat:AAA:0")
    assert held_by(lane) == "7"


def test_a_beat_tells_of_a_newer_claim_every_time(lane: Lane, raw: redis.Redis) -> None:
    """53, 60, R2"""
    lane.start("a", 1)
    lane.claim("b", 2)
    assert lane.beat("a", 1) == Usurped("b")
    assert lane.beat("a", 1) == Usurped("b")
    assert held_by(lane) == "b"


def test_a_beat_of_the_holder_renews_its_claim(lane: Lane, raw: redis.Redis) -> None:
    """54, 56, S1"""
    lane.start("a", 1)
    raw.pexpire(lane.keys().lane, 500)
    assert lane.beat("a", 1) == Held()
    assert raw.pttl(lane.keys().lane) > 299_000


def test_a_beat_reasserts_a_claim_that_was_lost(lane: Lane, raw: redis.Redis) -> None:
    """55, S2"""
    lane.start("a", 1)
    raw.delete(lane.keys().lane)
    assert lane.beat("a", 1) == Held()
    assert held_by(lane) == "a"


def test_a_long_run_hears_of_a_newer_claim_after_its_first_expiry(
    lane: Lane, raw: redis.Redis
) -> None:
    """57: the beats kept the claim, so the newer one buries it."""
    lane.start("a", 1)
    raw.delete(lane.keys().lane)
    lane.beat("a", 1)
    lane.claim("b", 2)
    assert tombstone(lane, raw, "a") == "b"
    assert lane.beat("a", 1) == Usurped("b")


def test_a_beat_never_shortens_a_claim(lane: Lane, raw: redis.Redis) -> None:
    """58, R20"""
    lane.claim("a", 1, delay=3600)
    lane.beat("a", 1)
    assert raw.ttl(lane.keys().lane) > 3890
    lane.claim("b", 2, delay=7200)
    lane.beat("a", 1)
    assert raw.ttl(lane.keys().lane) > 7490


def test_an_older_run_that_took_a_lost_lane_is_displaced_by_the_newers_beat(
    lane: Lane, raw: redis.Redis
) -> None:
    """59, R19"""
    lane.start("b", 2)
    raw.delete(lane.keys().lane)
    assert lane.start("a", 1) == Started(), "it cannot be known here; the row knows it"
    assert lane.beat("b", 2) == Held()
    assert held_by(lane) == "b"
    assert tombstone(lane, raw, "a") == "b"
    assert lane.beat("a", 1) == Usurped("b")


def test_a_finished_claim_no_longer_holds_the_lane(lane: Lane, raw: redis.Redis) -> None:
    """75"""
    lane.start("a", 1)
    assert lane.finish("a", 1)
    assert not lane.finish("a", 1)
    assert held_by(lane) is None
    assert lane.claim("b", 2) == Claimed(None)
    assert tombstone(lane, raw, "a") is None


def test_a_finish_takes_out_older_claims_and_leaves_them_superseded(
    lane: Lane, raw: redis.Redis
) -> None:
    """75"""
    lane.claim("a", 1)
    lane.finish("b", 2)
    assert held_by(lane) is None
    assert tombstone(lane, raw, "a") == "b"
    assert lane.beat("a", 1) == Usurped("b")


def test_a_finish_of_an_older_run_leaves_the_newer_claim_alone(lane: Lane) -> None:
    """75"""
    lane.start("a", 1)
    lane.claim("b", 2)
    lane.finish("a", 1)
    assert held_by(lane) == "b"
    assert lane.beat("b", 2) == Held()


def test_a_claim_that_arrives_after_its_own_finish_leaves_the_lane_vacant(
    lane: Lane, raw: redis.Redis
) -> None:
    """75: a quick run may end before the publisher's signal arrives."""
    lane.start("b", 2)
    lane.finish("b", 2)
    assert lane.claim("b", 2) == Displaced(None)
    assert held_by(lane) is None
    assert lane.start("b", 2) == Started(), "a run that is repeated may go on"
    assert lane.beat("b", 2) == Held()


def test_a_run_that_is_repeated_after_its_finish_hears_of_newer_ones(lane: Lane) -> None:
    lane.start("a", 1)
    lane.finish("a", 1)
    lane.claim("b", 2)
    assert lane.start("a", 1) == Superseded("b")
    assert lane.beat("a", 1) == Usurped("b")


def test_a_late_finish_of_an_older_run_takes_nothing_back(lane: Lane) -> None:
    lane.finish("c", 3)
    lane.finish("a", 1)
    assert lane.start("b", 2) == Superseded("c")
    assert held_by(lane) is None


def test_what_has_ended_keeps_no_tombstone(lane: Lane, raw: redis.Redis) -> None:
    """Nothing would mend it when the newer claim is released."""
    lane.claim("a", 1)
    lane.claim("b", 2)
    lane.finish("a", 1)
    assert tombstone(lane, raw, "a") is None


def test_a_finish_of_a_released_claim_is_told_that_there_was_none(lane: Lane) -> None:
    lane.claim("a", 1)
    lane.release("a", 1)
    assert not lane.finish("a", 1)
