"""The names of keys: no two lanes share one, and all keys of a lane live on one node."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from django_jobs import conf
from django_jobs.errors import SettingsError
from django_jobs.lanes import Lane
from django_jobs.lanes.keys import decode, encode, lane_keys, tag
from tests import servers
from tests.lanes.looking import held_by, tombstone

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
PARTS = st.tuples(TEXT, TEXT, TEXT)


def test_the_same_key_of_two_names_or_tenants_is_two_lanes(
    lane_server: servers.RedisServer, raw: redis.Redis
) -> None:
    """1, S19"""
    key = uuid.uuid4().hex
    lanes = [Lane("a", "", key), Lane("b", "", key), Lane("a", "t", key)]
    for lane in lanes:
        lane.claim("x", 1)
    lanes[0].claim("y", 2)
    assert [held_by(lane) for lane in lanes] == ["y", "x", "x"]
    assert [tombstone(lane, raw, "x") for lane in lanes] == ["y", None, None]


def test_the_name_of_a_key_is_the_same_in_every_process() -> None:
    """2"""
    ask = (
        "from django_jobs.lanes.keys import lane_keys; print(lane_keys('r', 'n', 't', 'k ' * 999))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", ask],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert told == {str(lane_keys("r", "n", "t", "k " * 999))}


def test_key_names_are_as_documented() -> None:
    """6, S18, T11"""
    keys = lane_keys("django_jobs:d", "app.index", "acme", "doc/7")
    assert keys.lane == "django_jobs:d:lane:{app.index:acme:doc%2F7}"
    assert keys.tombstone("x y") == ("django_jobs:d:lane:superseded:{app.index:acme:doc%2F7}:x%20y")


@given(one=PARTS, other=PARTS)
def test_different_lanes_have_different_keys(one: Any, other: Any) -> None:
    """14"""
    assert (tag(*one) == tag(*other)) is (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a:b", "", "c"), ("a", "b:", "c")),
        (("a", "", "b:c"), ("a", ":b", "c")),
        (("a%3Ab", "", "c"), ("a:b", "", "c")),
        (("a", "", "}"), ("a", "", "{")),
        (("a", "", "x\n"), ("a", "", "x")),
        (("a", "", "\u00e9"), ("a", "", "e\u0301")),
        (("a", "", "x" * 10_000), ("a", "", "x" * 9_999 + "y")),
        (("superseded", "", "k"), ("claims", "", "k")),
    ],
)
def test_names_that_look_alike_are_different_lanes(one: Any, other: Any) -> None:
    """13, 14, 15: no name is reserved, since every part is encoded."""
    assert lane_keys("r", *one) != lane_keys("r", *other)


@given(parts=PARTS, job=TEXT)
def test_all_keys_of_a_lane_share_its_one_hash_tag(parts: Any, job: str) -> None:
    """LAN-08"""
    keys = lane_keys("p:d", *parts)
    tags = {key[key.index("{") + 1 : key.index("}")] for key in (keys.lane, keys.tombstone(job))}
    assert tags == {tag(*parts)}
    assert len(tag(*parts)) <= 200
    assert re.fullmatch(r"[\w.~%:#{}-]+", keys.tombstone(job), re.ASCII)


@given(text=TEXT)
def test_what_is_encoded_is_read_back(text: str) -> None:
    assert decode(encode(text)) == text


def test_holders_of_any_text_come_back_as_they_were(lane: Lane) -> None:
    """14"""
    odd = "a b\n{é}:%20 🙂"
    lane.claim(odd, 1)
    assert held_by(lane) == odd
    claimed = lane.claim("b", 2)
    assert claimed.previous == odd  # type: ignore[union-attr]
    lane.release("b", 2, odd)
    assert held_by(lane) == odd


def test_a_key_of_ten_kilobytes_is_a_lane_like_any_other(lane_server: servers.RedisServer) -> None:
    """15"""
    lane = Lane("a", "", uuid.uuid4().hex * 320)
    lane.claim("x", 1)
    assert held_by(lane) == "x"
    assert len(lane.keys().lane) < 200


@pytest.mark.parametrize("values", [("", "", "k"), ("n", "", ""), ("n", None, "k"), ("n", "", 7)])
def test_a_lane_without_a_name_or_a_key_is_refused(values: Any) -> None:
    """16"""
    with pytest.raises(ValueError, match="a lane's"):
        Lane(*values)


@pytest.mark.parametrize("prefix", ["", "a b", "{x}", "x" * 101, None, "é"])
def test_a_prefix_that_would_break_keys_is_refused(prefix: Any) -> None:
    with pytest.raises(SettingsError, match="LANES_PREFIX"):
        conf.parse({"LANES_PREFIX": prefix})


@pytest.mark.parametrize("setting", ["LANES_TIMEOUT", "LANES_POLL"])
@pytest.mark.parametrize("value", [0, -1, "1", float("nan")])
def test_a_time_that_cannot_be_is_refused(setting: str, value: Any) -> None:
    """114"""
    with pytest.raises(SettingsError, match=setting):
        conf.parse({setting: value})
