"""Publishes, starts, beats, ends, losses and crashes of one lane in any order, on real servers.

Whatever happens in between, once all is quiet the job published last has ended done, nothing older
ended done after it was published, and never do two jobs of the lane live at a time.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from django.db import transaction
from django.db.models.functions import Now
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_jobs import conf, enqueue, retry
from django_jobs.errors import LaneMovedOn
from django_jobs.ids import new_token
from django_jobs.lanes import advice
from django_jobs.lanes.advice import Advice
from django_jobs.leases import claim_of
from django_jobs.loops import relay
from django_jobs.models import Job, Lane, LaneKey, Outbox, Run, publishing
from django_jobs.operations.announcing import announce
from django_jobs.outcomes import Failure
from django_jobs.states import LIVE, State
from tests.app.jobs import reindex
from tests.rows.parties import jobs

BOOM = Failure("E", "boom", "")
CHOICE = st.integers(0, 100)
COLUMNS = ("id", "lane_token", "state", "superseded_by")
numbers = itertools.count()


class RolledBack(Exception):
    """Ends a transaction."""


@dataclass
class Claimed:
    """What a relay has leased and not yet published."""

    token: UUID
    lanes: dict[int, LaneKey | None]


class LaneMachine(RuleBasedStateMachine):
    """``raw`` is a client of the server that carries the signals."""

    raw: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.alias = conf.current().database
        for model in (Job, Outbox, Lane):
            model.objects.using(self.alias).all().delete()
        self.raw.flushdb()
        self.claims: list[Claimed] = []
        self.runs: list[Run] = []

    # --- publishing

    @initialize(staged=st.integers(0, 2))
    def begin_with(self, staged: int) -> None:
        for _ in range(staged):
            self.stage()

    @rule()
    def stage(self) -> None:
        with transaction.atomic(using=self.alias):
            enqueue(reindex, 1, str(next(numbers)))

    @rule()
    def publish_directly(self) -> None:
        enqueue(reindex, 1, str(next(numbers)))

    @rule()
    def roll_back(self) -> None:
        with contextlib.suppress(RolledBack), transaction.atomic(using=self.alias):
            enqueue(reindex, 1, str(next(numbers)))
            raise RolledBack

    @precondition(lambda self: len(self.claims) < 2)
    @rule(limit=st.integers(1, 3))
    def claim_entries(self, limit: int) -> None:
        token = new_token()
        found = publishing.outbox(self.alias).claim(token, limit=limit, lease=30)
        if found:
            self.claims.append(Claimed(token, {seq: one.lane for seq, one in found.items()}))

    @precondition(lambda self: self.claims)
    @rule(n=CHOICE, told=st.booleans(), fails=st.booleans())
    def publish_claimed(self, n: int, told: bool, fails: bool) -> None:
        """Late, or in another order than claimed; untold when the relay dies after its commit."""
        claim = self.claims.pop(n % len(self.claims))
        with contextlib.suppress(RolledBack), transaction.atomic(using=self.alias):
            done = publishing.publish_claimed(self.alias, self.alias, claim.token, claim.lanes)
            if fails:
                raise RolledBack
        if told and not fails:
            announce(self.alias, done)

    @precondition(lambda self: self.claims)
    @rule(n=CHOICE)
    def publish_as_usual(self, n: int) -> None:
        self.publish_claimed(n, told=True, fails=False)

    @rule()
    def claims_run_out(self) -> None:
        """The relays that hold them do not know it."""
        Outbox.objects.using(self.alias).filter(outcome=None).update(
            claimed_until=Now() - timedelta(seconds=1)
        )

    # --- running

    @precondition(lambda self: len(self.runs) < 3)
    @rule()
    def begin(self) -> None:
        for run in jobs().claim("default", room=1, lease=60, worker="w"):
            claim = claim_of(run)
            if advice.start(claim) is Advice.LOOK:
                if not jobs().still_held([run]):
                    continue
                advice.reclaim([claim])
            self.runs.append(run)

    @precondition(lambda self: self.runs)
    @rule()
    def beat(self) -> None:
        usurped = advice.beat([claim_of(run) for run in self.runs])
        ours = jobs().still_held([run for run in self.runs if run.id in usurped])
        advice.reclaim([claim_of(run) for run in self.runs if run.id in ours])
        self.runs = [run for run in self.runs if run.id not in usurped or run.id in ours]

    @precondition(lambda self: self.runs)
    @rule(n=CHOICE, how=st.sampled_from(["succeed", "retry", "shed", "bury", "lapse"]))
    def end(self, n: int, how: str) -> None:
        run = self.runs.pop(n % len(self.runs))
        newest = self.greatest_token()
        if how == "succeed":
            if jobs().succeed([(run, "1")]):
                assert run.lane_token == newest, "an older run was done after a newer publish"
                advice.finish([claim_of(run)])
        elif how == "retry":
            jobs().retry(run, BOOM, 60)
        elif how == "shed":
            jobs().shed([run])
        elif how == "bury":
            jobs().bury(run, BOOM, "", keep=True)
        else:
            jobs().filter(id=run.id, lease=run.lease).update(
                lease_expires_at=Now() - timedelta(seconds=1)
            )
            jobs().lapse(limit=9, max_crashes=100)
            self.runs.append(run)  # It does not know.

    @rule()
    def retry_the_dead(self) -> None:
        for job in jobs().filter(state="dead"):
            newest = self.greatest_token()
            try:
                retry(job.id)
            except LaneMovedOn:
                assert job.lane_token != newest
            else:
                assert job.lane_token == newest, "what is older was run again"

    @rule()
    def time_passes(self) -> None:
        jobs().filter(state="delayed").update(run_at=Now() - timedelta(seconds=1))
        jobs().wake(limit=9)

    # --- losses

    @rule()
    def flush(self) -> None:
        self.raw.flushdb()

    @rule(n=CHOICE)
    def lose_a_key(self, n: int) -> None:
        keys = sorted(self.raw.scan_iter())
        if keys:
            self.raw.delete(keys[n % len(keys)])

    # --- what always holds

    def greatest_token(self) -> int:
        return max((t for t in jobs().values_list("lane_token", flat=True)), default=0)

    @invariant()
    def the_newest_is_the_only_one_that_lives(self) -> None:
        rows = {id_: rest for id_, *rest in jobs().values_list(*COLUMNS)}
        newest = max((token for token, _, _ in rows.values()), default=0)
        live = [token for token, state, _ in rows.values() if state in LIVE]
        assert live in ([], [newest])
        for token, _, by in rows.values():
            assert by is None or token < rows[by][0], "it gave way to something older"
        head = Lane.objects.using(self.alias).first()
        assert (head.last_token if head else 0) == newest
        displaced = Outbox.objects.using(self.alias).filter(outcome="displaced")
        assert not rows.keys() & set(displaced.values_list("id", flat=True)), "displaced, yet a job"

    def teardown(self) -> None:
        """All is quiet: what was committed is published, and the newest runs to its end."""
        self.claims_run_out()
        while relay.tick(self.alias):
            pass
        staged = Outbox.objects.using(self.alias).filter(outcome=None)
        assert not staged.exists()
        jobs().filter(state=State.RUNNING).update(lease_expires_at=Now() - timedelta(seconds=1))
        jobs().lapse(limit=9, max_crashes=100)
        jobs().update(crashes=0)
        self.time_passes()
        for run in jobs().claim("default", room=9, lease=60, worker="w"):
            if advice.start(claim_of(run)) is Advice.LOOK:
                assert jobs().still_held([run]), "neither runs"
            assert jobs().succeed([(run, "1")])
        newest = jobs().order_by("-lane_token").first()
        assert newest is None or newest.state in (State.DONE, State.DEAD)
        super().teardown()


def play(raw: redis.Redis, examples: int, steps: int) -> None:
    LaneMachine.raw = raw
    run_state_machine_as_test(
        LaneMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_newest_wins_in_any_order(jobs_alias: str, own_raw: redis.Redis) -> None:
    play(own_raw, examples=40, steps=30)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_newest_wins_in_any_order_for_long(jobs_alias: str, own_raw: redis.Redis) -> None:
    play(own_raw, examples=600, steps=50)


@pytest.fixture
def own_raw(wheel_server: Any, settings: Any) -> Any:
    """A client of the server of these tests' own, which may be flushed."""
    from tests.lanes.conftest import use

    use(settings, wheel_server, LANES_TIMEOUT=5.0)
    with redis.Redis.from_url(wheel_server.url(), decode_responses=True) as client:
        yield client
