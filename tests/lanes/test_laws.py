"""What holds for every sequence of calls, against a model of a few lines."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs.lanes import Lane
from tests.lanes.looking import held_by

# Job "a" has two lives, so that a newer one must undo what befell the older.
PAIRS = [("a", 1), ("b", 2), ("c", 3), ("a", 4), ("d", 5)]
RELEASED = {("b", 2), ("d", 5), ("a", 4)}
"""A claim is released or finished, never both."""

CALLS = [(verb, *pair) for pair in PAIRS for verb in ("claim", "start", "beat")]
CALLS += [("release" if pair in RELEASED else "finish", *pair) for pair in PAIRS]
Call = tuple[str, str, int]

many = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)


def new_lane() -> Lane:
    return Lane("law", "", uuid.uuid4().hex)


def perform(lane: Lane, call: Call) -> object:
    verb, holder, token = call
    return getattr(lane, verb)(holder, token)


@dataclass
class Model:
    """A lane as sets: no order anywhere."""

    told: set[tuple[str, int]] = field(default_factory=set)
    released: set[tuple[str, int]] = field(default_factory=set)
    mark: int = 0

    @classmethod
    def of(cls, calls: list[Call]) -> Model:
        model = cls()
        for verb, holder, token in calls:
            if verb == "release":
                model.released.add((holder, token))
            else:
                model.told.add((holder, token))
            if verb == "finish":
                model.mark = max(model.mark, token)
        model.told -= model.released
        return model

    def holder(self) -> str | None:
        live = [(token, holder) for holder, token in self.told if token > self.mark]
        return max(live)[1] if live else None

    def stopped(self) -> set[str]:
        """Every job whose newest life is older than something of another job."""
        lives = {holder: max(t for h, t in self.told if h == holder) for holder, _ in self.told}
        return {
            job
            for job, life in lives.items()
            if any(token > life for holder, token in self.told if holder != job)
        }


def tombstones(lane: Lane, raw: redis.Redis) -> dict[str, tuple[int, str]]:
    found = {}
    for job in {job for job, _ in PAIRS}:
        value = raw.get(lane.keys().tombstone(job))
        if value is not None:
            token, by = str(value).split()
            found[job] = (int(token), by)
    return found


def stopped(lane: Lane, raw: redis.Redis, model: Model) -> set[str]:
    """The jobs that a start would refuse, found without starting any."""
    fields = dict(raw.hgetall(lane.keys().lane))
    stones = tombstones(lane, raw)
    newer = []
    if done := fields.pop("finished", None):
        newer.append((int(done.split()[1]), done.split()[2]))
    for token, value in fields.items():
        _, state, holder, _ = value.split(" ")
        if state == "c":
            newer.append((int(token), holder))
    refused = set()
    for job in {holder for holder, _ in model.told}:
        life = max(token for holder, token in model.told if holder == job)
        above = [t for t, holder in newer if holder != job]
        if job in stones:
            above.append(stones[job][0])
        if any(token > life for token in above):
            refused.add(job)
    return refused


some_calls = st.lists(st.sampled_from(CALLS), min_size=1, max_size=12)


@many
@given(calls=some_calls, data=st.data())
def test_calls_in_any_order_and_executed_twice_leave_the_same_lane(
    lane_server: object, raw: redis.Redis, calls: list[Call], data: st.DataObject
) -> None:
    commute(raw, calls, data.draw(st.permutations(calls)))


@pytest.mark.soak
@pytest.mark.timeout(900)
@settings(many, max_examples=10_000)
@given(calls=some_calls, data=st.data())
def test_calls_in_any_order_leave_the_same_lane_for_long(
    lane_server: object, raw: redis.Redis, calls: list[Call], data: st.DataObject
) -> None:
    commute(raw, calls, data.draw(st.permutations(calls)))


def commute(raw: redis.Redis, calls: list[Call], shuffled: list[Call]) -> None:
    model = Model.of(calls)
    for order in (calls, shuffled):
        lane = new_lane()
        for call in order:
            first = perform(lane, call)
            second = perform(lane, call)
            if call[0] in ("claim", "start", "beat"):
                assert first == second
        assert held_by(lane) == model.holder()
        assert stopped(lane, raw, model) == model.stopped()


@many
@given(
    calls=st.lists(
        st.one_of(
            st.sampled_from(CALLS),
            st.sampled_from([("lose the lane", "", 0), ("lose all", "", 0)]),
        ),
        max_size=16,
    )
)
def test_no_loss_makes_two_holders_bury_each_other(
    lane_server: object, raw: redis.Redis, calls: list[Call]
) -> None:
    """I1, I2, I3, R17, R28: whatever was flushed or evicted in between."""
    lane, highest = new_lane(), 0
    lives: dict[str, int] = {}
    for call in calls:
        verb, job, token = call
        if verb.startswith("lose"):
            keys = [lane.keys().lane]
            if verb == "lose all":
                keys += [lane.keys().tombstone(job) for job, _ in PAIRS]
            raw.delete(*keys)
            highest = 0
            continue
        perform(lane, call)
        if verb != "release":
            lives[job] = max(lives.get(job, 0), token)
        stones = tombstones(lane, raw)
        for buried, (by_token, by) in stones.items():
            assert by != buried
            assert any(by_token > token for holder, token in PAIRS if holder == buried)
        for start in stones:
            seen, at = [], start
            while at in stones and at not in seen:
                seen.append(at)
                at = stones[at][1]
            assert at not in seen or not cycle_is_current(stones, seen), stones
        holder = lane.holder()
        now = holder.token if holder else 0
        if verb in ("release", "finish"):
            highest = now
        assert now >= highest
        highest = now


def cycle_is_current(stones: dict[str, tuple[int, str]], cycle: list[str]) -> bool:
    """Whether every tombstone of the cycle is greater than the greatest life it could bury."""
    return all(stones[job][0] > max(t for h, t in PAIRS if h == job) for job in cycle)


@many
@given(
    before=st.lists(st.sampled_from([c for c in CALLS if c[0] in ("claim", "start")]), max_size=8),
    beats=st.lists(st.sampled_from(PAIRS), min_size=1, max_size=8),
)
def test_after_a_loss_the_beats_alone_make_the_newest_holder_again(
    lane_server: object, raw: redis.Redis, before: list[Call], beats: list[tuple[str, int]]
) -> None:
    """I4, R19, R46: everything is gone, and only the running ones speak."""
    lane = new_lane()
    for call in before:
        perform(lane, call)
    raw.delete(lane.keys().lane, *(lane.keys().tombstone(job) for job, _ in PAIRS))
    for pair in beats:
        lane.beat(*pair)
    token, newest = max((token, job) for job, token in beats)
    assert held_by(lane) == newest
    holder = lane.holder()
    assert holder is not None
    assert holder.token == token
