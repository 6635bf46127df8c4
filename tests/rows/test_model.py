"""Three parties enqueue, publish, claim, settle, lapse, cancel and requeue against a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
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

from django_jobs import conf, enqueue, get
from django_jobs.errors import NotCancellable, NotRetryable
from django_jobs.loops import relay
from django_jobs.models import Job, Run, publishing
from django_jobs.outcomes import Failure
from django_jobs.states import FINISHED, LIVE, State
from tests.app.jobs import record
from tests.rows.parties import Party, jobs

PARTIES = st.integers(0, 2)
KEYS = st.sampled_from(["a", "b", "c"])
CHOICE = st.integers(0, 1_000)
BOOM = Failure("E", "boom", "")
MAX_CRASHES = 3


@dataclass
class Known:
    """What a job should be."""

    key: str
    state: State = State.READY
    lease: UUID | None = None
    attempt: int = 0
    crashes: int = 0


@dataclass
class Open:
    """A transaction that a party has not ended yet, with the number and key of each entry."""

    block: Any
    staged: list[tuple[int, UUID, str]] = field(default_factory=list)


def settle(kind: str, run: Run) -> bool:
    if kind == "succeed":
        return run.id in jobs().succeed([(run, "1")])
    if kind == "retry":
        return jobs().retry(run, BOOM, 60)
    if kind == "suspend":
        return jobs().suspend(run, 60, "")
    if kind == "shed":
        return bool(jobs().shed([run]))
    if kind == "renew":
        return run.id in jobs().renew([run], 60)[0]
    return jobs().bury(run, BOOM, "", keep=True)


TARGETS = {
    "succeed": State.DONE,
    "retry": State.DELAYED,
    "suspend": State.SUSPENDED,
    "shed": State.READY,
    "renew": State.RUNNING,
    "bury": State.DEAD,
}


class Queue(RuleBasedStateMachine):
    """The real tables on one side, ``self.known`` on the other."""

    def __init__(self) -> None:
        super().__init__()
        self.alias = conf.current().database
        self.parties = [Party() for _ in range(3)]
        self.known: dict[UUID, Known] = {}
        self.staged: list[tuple[int, UUID, str]] = []
        self.receipts: dict[UUID, UUID] = {}
        self.open: dict[int, Open] = {}
        self.runs: list[tuple[int, Run]] = []
        self.stagings = 0

    def teardown(self) -> None:
        for number, mine in self.open.items():
            self.parties[number].do(mine.block.__exit__, KeyboardInterrupt, None, None)
        for one in self.parties:
            one.leave()
        Job.objects.all().delete()
        publishing.outbox(self.alias).all().delete()

    def holder(self, key: str) -> UUID | None:
        live = [id_ for id_, job in self.known.items() if job.key == key and job.state in LIVE]
        assert len(live) <= 1
        return live[0] if live else None

    def pick(self, choice: int) -> UUID:
        return sorted(self.known)[choice % len(self.known)]

    def staged_as(self, answer: Any, key: str, into: list[tuple[int, UUID, str]]) -> None:
        if (live := self.holder(key)) is not None:
            assert (answer.status, answer.id) == ("deduped", live)
            return
        assert answer.status == "staged"
        self.stagings += 1
        into.append((self.stagings, answer.id, key))

    @initialize()
    def begin_with_claimed_work(self) -> None:
        """Drawn at random alone, few walks come as far as a run."""
        for key in ("a", "b", "c"):
            self.enqueue_direct(0, key)
        self.claim(0, 1, False)
        self.claim(1, 1, False)
        self.settle_what_was_taken_over(0, "retry")

    # --- enqueue and publish

    @rule(party=PARTIES, key=KEYS)
    def enqueue_direct(self, party: int, key: str) -> None:
        if party in self.open:
            return
        answer = self.parties[party].do(enqueue, record, key)
        if (live := self.holder(key)) is not None:
            assert (answer.status, answer.id) == ("deduped", live)
            return
        assert answer.status == "published"
        self.known[answer.id] = Known(key)

    @rule(party=PARTIES, key=KEYS)
    def stage(self, party: int, key: str) -> None:
        if party in self.open:
            mine = self.open[party]
            self.staged_as(self.parties[party].do(enqueue, record, key), key, mine.staged)
            return

        def in_one_step() -> Any:
            with transaction.atomic(using=self.alias):
                return enqueue(record, key)

        self.staged_as(self.parties[party].do(in_one_step), key, self.staged)

    @precondition(lambda self: self.alias == "default")  # SQLite has one writer at a time.
    @rule(party=PARTIES)
    def begin(self, party: int) -> None:
        if party not in self.open:
            block = transaction.atomic(using=self.alias)
            self.parties[party].do(block.__enter__)
            self.open[party] = Open(block)

    @rule(party=PARTIES, commit=st.booleans())
    def end(self, party: int, commit: bool) -> None:
        if party in self.open:
            mine = self.open.pop(party)
            kind = None if commit else KeyboardInterrupt
            self.parties[party].do(mine.block.__exit__, kind, None, None)
            if commit:
                self.staged = sorted(self.staged + mine.staged)

    @rule(party=PARTIES)
    def publish(self, party: int) -> None:
        if party in self.open:
            return
        assert self.parties[party].do(relay.tick, self.alias) == len(self.staged)
        for _, id_, key in self.staged:
            live = self.holder(key)
            if live is None:
                self.known[id_] = Known(key)
            self.receipts[id_] = live or id_
        self.staged = []

    # --- runs

    @rule(party=PARTIES, room=st.integers(1, 3), suspects=st.sampled_from([False, False, True]))
    def claim(self, party: int, room: int, suspects: bool) -> None:
        if party in self.open:
            return
        ready = {
            id_
            for id_, job in self.known.items()
            if job.state is State.READY and (job.crashes >= 2) == suspects
        }
        runs = self.parties[party].do(
            lambda: jobs().claim(
                "default", room=room, lease=60, worker=f"w{party}", suspects=suspects
            )
        )
        assert len(runs) == min(room, len(ready))
        assert {run.id for run in runs} <= ready
        for run in runs:
            job = self.known[run.id]
            job.state, job.lease, job.attempt = State.RUNNING, run.lease, job.attempt + 1
            self.runs.append((party, run))

    @precondition(lambda self: self.runs)
    @rule(choice=CHOICE, kind=st.sampled_from(sorted(TARGETS)))
    def settle_any(self, choice: int, kind: str) -> None:
        self.settle(*self.runs[choice % len(self.runs)], kind)

    @precondition(lambda self: self.runs)
    @rule(kind=st.sampled_from(sorted(TARGETS)))
    def settle_the_latest(self, kind: str) -> None:
        self.settle(*self.runs[-1], kind)

    @precondition(lambda self: self.runs and not self.open)
    @rule(choice=CHOICE, end=st.sampled_from(sorted(TARGETS)))
    def settle_what_was_taken_over(self, choice: int, end: str) -> None:
        """Lapse, claim by another party, and then the first one's settles: why there is a fence.

        Left to chance these meet in one walk of hundreds, and a fence that is gone goes unnoticed.
        """
        ours = [(p, run) for p, run in self.runs if self.known[run.id].lease == run.lease]
        running = [(p, run) for p, run in ours if self.known[run.id].state is State.RUNNING]
        if not running:
            return
        party, run = running[choice % len(running)]
        other = (party + 1) % 3
        self.lapse_one(other, run.id)
        if self.known[run.id].state is not State.READY:
            return
        self.claim(other, 99, self.known[run.id].crashes >= 2)
        assert self.known[run.id].lease not in (None, run.lease)
        for kind in sorted(TARGETS):
            self.settle(party, run, kind)
        self.settle(*[(p, mine) for p, mine in self.runs if mine.id == run.id][-1], end)
        self.settle(party, run, end)  # The row is where it wanted it; another has brought it there.

    def settle(self, party: int, run: Run, kind: str) -> None:
        if party in self.open:
            return
        job, target = self.known[run.id], TARGETS[kind]
        ours = job.lease == run.lease
        landed = self.parties[party].do(settle, kind, run)
        if ours and job.state is State.RUNNING:
            assert landed
            job.state = target
            if kind in ("suspend", "shed"):
                job.attempt -= 1
        else:
            assert landed == (ours and job.state is target and kind != "shed")

    @rule(party=PARTIES, choice=CHOICE)
    def lapse(self, party: int, choice: int) -> None:
        running = sorted(id_ for id_, job in self.known.items() if job.state is State.RUNNING)
        if party in self.open or not running:
            return
        self.lapse_one(party, running[choice % len(running)])

    def lapse_one(self, party: int, id_: UUID) -> None:
        jobs().filter(id=id_).update(lease_expires_at=Now() - timedelta(seconds=1))
        (lapsed,) = self.parties[party].do(lambda: jobs().lapse(limit=9, max_crashes=MAX_CRASHES))
        job = self.known[id_]
        job.crashes += 1
        job.attempt -= 1
        job.lease = None
        job.state = State.DEAD if job.crashes >= MAX_CRASHES else State.READY
        assert (lapsed.job_id, lapsed.state, lapsed.crashes) == (id_, job.state, job.crashes)

    @rule(party=PARTIES)
    def wake(self, party: int) -> None:
        if party in self.open:
            return
        asleep = [j for j in self.known.values() if j.state in (State.DELAYED, State.SUSPENDED)]
        sleeping = jobs().filter(state__in=("delayed", "suspended"))
        sleeping.update(run_at=Now() - timedelta(seconds=1))
        assert len(self.parties[party].do(lambda: jobs().wake(limit=99))) == len(asleep)
        for job in asleep:
            job.state = State.READY

    # --- operators

    @precondition(lambda self: self.known)
    @rule(party=PARTIES, choice=CHOICE)
    def cancel(self, party: int, choice: int) -> None:
        if party in self.open:
            return
        id_ = self.pick(choice)
        job = self.known[id_]
        try:
            was = self.parties[party].do(lambda: jobs().cancel(id_, tenant=None, by="", reason=""))
        except NotCancellable:
            assert job.state in FINISHED
            return
        assert was is job.state and job.state in LIVE
        job.state, job.lease = State.CANCELLED, None

    @precondition(lambda self: self.known)
    @rule(party=PARTIES, choice=CHOICE, force=st.booleans())
    def requeue(self, party: int, choice: int, force: bool) -> None:
        if party in self.open:
            return
        id_ = self.pick(choice)
        job = self.known[id_]
        jobs().filter(id=id_, state="cancelled").update(worker="")  # Its body has ended.
        allowed = (
            job.state in (State.DEAD, State.FAILED) or (force and job.state in FINISHED)
        ) and self.holder(job.key) is None
        try:
            self.parties[party].do(lambda: jobs().requeue(id_, force=force))
        except NotRetryable:
            assert not allowed
            return
        assert allowed
        self.known[id_] = Known(job.key)

    # --- what always holds

    @invariant()
    def every_row_is_as_modelled(self) -> None:
        rows = {
            job.id: Known(
                job.idempotency_key.removeprefix("record:"),
                State(job.state),
                job.lease,
                job.attempt,
                job.crashes,
            )
            for job in jobs().all()
        }
        assert rows == self.known
        live = [job.key for job in rows.values() if job.state in LIVE]
        assert len(live) == len(set(live)), "two live jobs hold one key"

    @invariant()
    def nothing_that_was_enqueued_is_lost(self) -> None:
        pending = publishing.outbox(self.alias).pending().values_list("id", flat=True)
        assert set(pending) == {id_ for _, id_, _ in self.staged}
        for id_, stands in list(self.receipts.items())[-3:]:
            assert get(id_).job_id == stands

    @invariant()
    def a_lease_is_held_by_one_party(self) -> None:
        holders: dict[UUID, set[int]] = {}
        for party, run in self.runs:
            holders.setdefault(run.lease, set()).add(party)
        assert all(len(parties) == 1 for parties in holders.values())


def play(examples: int, steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Queue,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_three_parties_and_a_simple_model_agree_after_every_step(jobs_alias: str) -> None:
    play(examples=30, steps=40)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_three_parties_and_a_simple_model_agree_for_long(jobs_alias: str) -> None:
    play(examples=400, steps=80)
