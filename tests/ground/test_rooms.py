"""How many runs are claimed, and of which kind."""

from __future__ import annotations

import pytest

from django_jobs.loops.rooms import NOTHING, SHORTEST_STRIDE, Ask, Prefetch, Rooms


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("django_jobs.loops.rooms.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def rooms(threads: int, slots: int) -> Rooms:
    """Rooms of a worker with so many idle threads and slots."""
    return Rooms(Prefetch(lambda: threads), Prefetch(lambda: slots))


def test_at_first_no_more_is_claimed_than_either_kind_can_start(clock: Clock) -> None:
    assert rooms(4, 20).ask((0, 0), (0, 0)) == Ask(4)
    assert rooms(1, 20).ask((0, 0), (0, 0)) == Ask(1)
    assert rooms(8, 2).ask((0, 0), (0, 0)) == Ask(2)


def test_what_finishes_fast_is_claimed_ahead_whatever_room_the_other_kind_has(
    clock: Clock,
) -> None:
    worker = rooms(0, 20)
    worker.ask((0, 0), (0, 0))
    assert worker.ask((300, 0), (0, 0)) == Ask(300)
    assert worker.ask((300, 90), (0, 0)) == Ask(300)


@pytest.mark.parametrize(("idle", "coroutines"), [((0, 20), True), ((4, 0), False)])
def test_while_one_kind_has_no_room_only_the_other_is_asked_for(
    clock: Clock, idle: tuple[int, int], coroutines: bool
) -> None:
    assert rooms(*idle).ask((0, 0), (0, 0)) == Ask(max(idle), coroutines)
    assert rooms(0, 0).ask((0, 0), (0, 0)).room == 0


def test_a_claim_of_one_kind_that_found_nothing_is_put_off_in_proportion_to_its_cost(
    clock: Clock,
) -> None:
    worker = rooms(0, 20)
    ask = worker.ask((0, 0), (0, 0))
    worker.took(ask, 0.5, found=1)
    assert worker.ask((0, 0), (0, 0)) == ask
    worker.took(ask, 0.0001, found=0)
    assert worker.ask((0, 0), (0, 0)) == NOTHING
    assert worker.pause() == pytest.approx(SHORTEST_STRIDE)
    clock.now += SHORTEST_STRIDE + 0.001
    assert worker.ask((0, 0), (0, 0)) == ask
    assert worker.pause() > 10  # Nobody has been turned away: no need to look again unasked.
    worker.took(ask, 0.5, found=0)
    assert worker.ask((0, 0), (0, 0)) == NOTHING
    assert worker.pause() == pytest.approx(10)


def test_a_claim_of_any_kind_is_never_put_off(clock: Clock) -> None:
    worker = rooms(4, 4)
    worker.took(worker.ask((0, 0), (0, 0)), 5.0, found=0)
    assert worker.ask((0, 0), (0, 0)) == Ask(4)
