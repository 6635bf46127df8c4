"""Claims: disjoint, in order, from the hot index; and many rows changed by several at once."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.db.models import Count
from django.db.models.functions import Now

from django_jobs import enqueue_many
from django_jobs.errors import NotCancellable
from django_jobs.ids import new_id, new_token
from django_jobs.models import Job, Run, peeking, picking, publishing
from django_jobs.models.outbox import ENTRY_TYPES
from django_jobs.outcomes import Failure
from django_jobs.states import State
from tests.app.jobs import record
from tests.rows.parties import at_once, jobs, make, party, row, run_of

postgres_only = pytest.mark.django_db(transaction=True, databases="__all__")
"""For what needs row locks that two connections can hold at once."""

MANY = """
INSERT INTO django_jobs_job (
    id, run_id, name, idempotency_key, payload, state, run_at, priority, finished_at, queue,
    lease, lease_expires_at, worker, attempt
)
SELECT
    gen_random_uuid(), gen_random_uuid(), 'tests.many', 'many:' || gen_random_uuid(), '[]', %s,
    statement_timestamp() + n * interval '1 second' * %s, n %% 3,
    CASE WHEN %s IN ('done', 'dead') THEN statement_timestamp() END, 'default',
    CASE WHEN %s = 'running' THEN %s::uuid END,
    CASE WHEN %s = 'running' THEN statement_timestamp() + interval '1 hour' END, 'w', 0
FROM generate_series(1, %s) AS n
"""


def make_many(state: State, count: int, *, ahead: bool = False) -> Any:
    """``count`` rows on PostgreSQL; the lease token of the running ones."""
    token = new_token()
    name = state.value
    with connections["default"].cursor() as cursor:
        cursor.execute(MANY, [name, 1 if ahead else -1, name, name, token, name, count])
    return token


def claim(room: int = 9, **options: Any) -> list[Run]:
    return jobs().claim("default", room=room, lease=60, worker="w", **options)


# --- what a claim takes --------------------------------------------------------------------------


@postgres_only
def test_eight_claimers_take_every_row_once_and_never_more_than_they_asked_for() -> None:
    make_many(State.READY, 3000)
    rooms = (1, 2, 5, 10, 17, 30, 50, 100)

    def take_all(room: int) -> list[Any]:
        taken: list[Any] = []
        while runs := claim(room):
            assert len(runs) <= room
            assert len({run.lease for run in runs}) == 1
            taken += [(run.id, run.lease) for run in runs]
        return taken

    parts = at_once(*[lambda room=room: take_all(room) for room in rooms])
    taken = [one for part in parts for one in part]
    assert len(taken) == len(set(taken)) == 3000
    on_the_rows = set(Job.objects.values_list("id", "lease"))
    assert set(taken) == on_the_rows
    assert set(Job.objects.values_list("attempt", "state")) == {(1, "running")}


@postgres_only
def test_a_claim_neither_waits_for_a_locked_row_nor_takes_fewer_for_it() -> None:
    first, second = make(State.READY, priority=-1), make(State.READY)
    with party() as holder:
        block = transaction.atomic()
        holder.do(block.__enter__)
        holder.do(lambda: list(jobs().filter(id=first.id).select_for_update()))
        assert [run.id for run in claim(room=1)] == [second.id]
        holder.do(block.__exit__, None, None, None)
    assert [run.id for run in claim(room=1)] == [first.id]


def test_claims_follow_priority_then_due_time_then_id(jobs_alias: str) -> None:
    due = [Now() - timedelta(minutes=minutes) for minutes in (30, 20, 20, 10)]
    made = [make(State.READY, priority=p, run_at=at) for p in (5, -5, 0) for at in due]
    random.Random(1).shuffle(made)
    rows = sorted(jobs().all(), key=lambda job: (job.priority, job.run_at, job.id))
    taken = [run.id for room in (1, 4, 2, 9) for run in claim(room)]
    assert taken == [job.id for job in rows]


def test_a_claim_takes_ready_rows_of_its_queue_that_nothing_holds_back(jobs_alias: str) -> None:
    taken = [make(State.READY), make(State.READY, not_before=Now() - timedelta(seconds=1))]
    make(State.READY, queue="other")
    make(State.READY, blocked=True)
    make(State.READY, not_before=Now() + timedelta(seconds=60))
    assert claim(room=0) == []
    assert {run.id for run in claim()} == {job.id for job in taken}
    assert claim() == []
    assert {row(job.id).not_before for job in taken} == {None}


def test_a_claim_leaves_its_mark_and_keeps_the_first_start(jobs_alias: str) -> None:
    job = make(State.READY)
    (run,) = claim()
    first = row(job.id)
    assert (first.state, first.attempt, first.lease) == (State.RUNNING, 1, run.lease)
    assert first.worker == "w" and first.started_at is not None
    assert first.lease_expires_at is not None
    held = first.lease_expires_at - first.started_at
    assert timedelta(seconds=59) < held < timedelta(seconds=61)
    assert jobs().shed([run]) == 1
    (again,) = claim()
    assert again.lease != run.lease
    assert row(job.id).started_at == first.started_at


def test_a_payload_too_large_to_travel_with_its_claim_is_read_by_itself(jobs_alias: str) -> None:
    text = "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz", k=60_000))
    large, small = make(State.READY, payload=[text]), make(State.READY, payload=["s"])
    runs = {run.id: run for run in claim()}
    assert runs[large.id].payload is None
    assert json.loads(jobs().payload_of(large.id)) == [text]
    assert json.loads(runs[small.id].payload or "") == ["s"]


def test_suspects_are_taken_only_when_asked_for_and_then_nothing_else_is(jobs_alias: str) -> None:
    made = {crashes: make(State.READY, crashes=crashes).id for crashes in (0, 1, 2, 5)}
    assert [run.crashes for run in claim(suspects=True, room=1)] == [2]
    assert {run.id for run in claim()} == {made[0], made[1]}
    assert {run.id for run in claim(suspects=True)} == {made[5]}


def test_a_claim_from_a_floor_goes_on_where_the_last_one_began(jobs_alias: str) -> None:
    made = [
        make(State.READY, priority=p, run_at=Now() - timedelta(minutes=m))
        for p in (1, 2)
        for m in (30, 20, 10)
    ]
    first = claim(room=1)[0]
    taken = [first.id]
    floor = (first.priority, first.run_at)
    while runs := claim(room=2, floor=floor):
        taken += [run.id for run in runs]
        floor = (runs[0].priority, runs[0].run_at)
    assert taken == [job.id for job in made]


def test_a_floor_hides_older_rows_of_its_priority_but_no_equal_and_no_urgent_ones(
    jobs_alias: str,
) -> None:
    at = row(make(State.DONE).id).run_at
    older = make(State.READY, run_at=at - timedelta(minutes=1))
    equal = [make(State.READY, run_at=at) for _ in range(2)]
    urgent = make(State.READY, priority=-1, run_at=at - timedelta(days=1))
    lower = make(State.READY, priority=1, run_at=at - timedelta(days=1))
    if jobs_alias == "sqlite":  # A floor is handed back as the engine gave it: text.
        with connections[jobs_alias].cursor() as cursor:
            cursor.execute("SELECT run_at FROM django_jobs_job WHERE id = %s", [equal[0].id.hex])
            floor = (0, cursor.fetchone()[0])
    else:
        floor = (0, at)
    seen = [run.id for run in claim(floor=floor)]
    assert seen[0] == urgent.id
    assert set(seen) == {urgent.id, equal[0].id, equal[1].id, lower.id}
    assert [run.id for run in claim()] == [older.id]


def test_urgent_rows_below_the_floor_fill_the_room_first(jobs_alias: str) -> None:
    rest = [make(State.READY) for _ in range(3)]
    urgent = [make(State.READY, priority=-p) for p in (1, 2, 3)]
    (first,) = jobs().filter(id=rest[0].id)
    floor = (0, None)
    assert [run.id for run in claim(room=2, floor=floor)] == [urgent[2].id, urgent[1].id]
    assert [run.id for run in claim(room=2, floor=floor)] == [urgent[0].id, first.id]


# --- the plans -----------------------------------------------------------------------------------


@contextmanager
def captured(alias: str) -> Iterator[list[tuple[str, Any]]]:
    """Every statement of the block, none of which leaves a trace."""
    statements: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append((sql, params))
        return execute(sql, params, many, context)

    with transaction.atomic(using=alias), connections[alias].execute_wrapper(note):
        yield statements
        transaction.set_rollback(True, using=alias)


def entry(**values: Any) -> dict[str, Any]:
    """One entry as enqueue hands it over."""
    columns = dict.fromkeys(ENTRY_TYPES)
    columns |= {"id": new_id(), "name": "tests.row", "queue": "default", "priority": 0}
    columns |= {"tenant": "", "payload": "[]", "max_attempts": 3, "on_conflict": "dedupe"}
    columns |= {"traceparent": "", "enqueued_by": "", "release": "", "batch": new_token()}
    columns |= {"idempotency_key": str(new_token()), "staged_at": None}
    return {**columns, **values}


def hot_statements(alias: str) -> dict[str, tuple[set[str], Callable[[], Any]]]:
    """Each hot call, with the indexes that serve it."""
    runs = [run_of(make(State.RUNNING)) for _ in range(20)]
    entries = [entry() for _ in range(20)]
    with transaction.atomic(using=alias):
        publishing.outbox(alias).stage([entry() for _ in range(20)], unless_live=False)
    token = new_token()
    outbox = publishing.outbox(alias)
    seqs = list(outbox.pending().values_list("seq", flat=True))
    key, own = "django_jobs_job_live_key", "pkey"
    held = "pkey|django_jobs_job_lease"  # Few are running: either finds them.
    return {
        "claim": ({"django_jobs_job_claim"}, lambda: claim(room=100)),
        "claim from a floor": (
            {"django_jobs_job_claim"},
            lambda: claim(room=100, floor=(1, runs[0].run_at if alias == "default" else "2020")),
        ),
        "claim a suspect": (
            {"django_jobs_job_suspect|django_jobs_job_claim"},
            lambda: claim(suspects=True),
        ),
        "succeed": ({held}, lambda: jobs().succeed([(run, "1") for run in runs])),
        "renew": ({held}, lambda: jobs().renew(runs, 60)),
        "retry": ({held}, lambda: jobs().retry(runs[0], Failure("E", "", ""), 60)),
        "shed": ({held}, lambda: jobs().shed(runs[:1])),
        "wake": ({"django_jobs_job_due"}, lambda: jobs().wake(limit=1000)),
        "lapse": ({"django_jobs_job_lease"}, lambda: jobs().lapse(limit=500, max_crashes=3)),
        "publish": ({own}, lambda: publishing.insert_jobs(alias, entries)),
        "publish a few": ({own}, lambda: publishing.insert_jobs(alias, entries[:1])),
        "look up holders": ({own, key}, lambda: publishing.holders(alias, entries)),
        "stage": ({key}, lambda: outbox.stage(entries, unless_live=True)),
        "look up staged": (
            {"django_jobs_outbox_key|django_jobs_outbox_pending"},
            lambda: publishing.staged_holders(alias, entries),
        ),
        "claim entries": (
            {"django_jobs_outbox_pending"},
            lambda: outbox.claim(token, limit=500, lease=30),
        ),
        "read claimed entries": (
            {"pkey|django_jobs_outbox_pending"},
            lambda: outbox.claimed(token, seqs),
        ),
        "peek": (
            {
                "django_jobs_outbox_pending",
                "django_jobs_job_due",
                "django_jobs_job_claim",
                "django_jobs_job_lease",
                "django_jobs_job_suspect|django_jobs_job_claim",
            },
            lambda: peeking.peek(alias, [alias], ["default"]),
        ),
        "prune": (
            {"django_jobs_job_finished"},
            lambda: jobs().prune(State.DEAD, age=86_400, limit=100),
        ),
    }


def walk(plan: Any) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from walk(below)


def plans_are_right() -> None:
    for what, (indexes, call) in hot_statements("default").items():
        with captured("default") as statements:
            call()
        used, scanned = set(), []
        with transaction.atomic(), connections["default"].cursor() as cursor:
            for sql, params in statements:
                if "django_jobs_" not in sql or sql.startswith(("SAVEPOINT", 'INSERT INTO "')):
                    continue
                cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
                for node in walk(cursor.fetchone()[0][0]["Plan"]):
                    used.add(str(node.get("Index Name")))
                    if node["Node Type"] == "Seq Scan":
                        scanned.append((node.get("Relation Name"), node.get("Filter")))
        used = {"pkey" if name.endswith("_pkey") else name for name in used}
        assert not scanned, (what, scanned)
        for index in indexes:
            assert set(index.split("|")) & used, (what, index, used)


def fill(finished: int, future: int) -> None:
    make_many(State.DONE, finished)
    make_many(State.DELAYED, future, ahead=True)
    make_many(State.READY, 200)
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_jobs_outbox (id, name, idempotency_key, payload, batch, outcome, "
            "published_at) SELECT gen_random_uuid(), 'tests.many', n, '[]', gen_random_uuid(), "
            "'published', statement_timestamp() FROM generate_series(1, %s) AS n",
            [future],
        )
        cursor.execute("ANALYZE django_jobs_job, django_jobs_outbox")


@postgres_only
def test_every_hot_statement_reads_its_partial_index_whatever_history_there_is() -> None:
    fill(100_000, 20_000)
    plans_are_right()


@pytest.mark.soak
@postgres_only
def test_every_hot_statement_reads_its_partial_index_beside_a_million_finished_jobs() -> None:
    fill(1_000_000, 100_000)
    plans_are_right()


@pytest.mark.parametrize("jobs_alias", ["sqlite"], indirect=True)
def test_sqlite_reads_no_whole_table_for_a_hot_statement(jobs_alias: str) -> None:
    for state in (State.DONE, State.DELAYED, State.READY):
        make(state)
    for what, (_, call) in hot_statements("sqlite").items():
        with captured("sqlite") as statements:
            call()
        with connections["sqlite"].cursor() as cursor:
            for sql, params in statements:
                if "django_jobs_" not in sql or sql.startswith(("SAVEPOINT", 'INSERT INTO "')):
                    continue
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
                steps = [step[3] for step in cursor.fetchall() if "USING" not in step[3]]
                whole = [step for step in steps if step.startswith(("SCAN django", "SCAN job"))]
                assert not whole, (what, whole, sql)


# --- several rows, several parties ---------------------------------------------------------------


@postgres_only
def test_a_renewal_passes_over_a_locked_row_and_does_not_call_it_lost() -> None:
    """Waiting for it would let every other lease of the process run out [d23]."""
    rows = [make(State.RUNNING) for _ in range(5)]
    locked = rows[2]
    runs = [run_of(job) for job in rows]
    with party() as body:
        block = transaction.atomic()
        body.do(block.__enter__)
        body.do(lambda: jobs().filter(id=locked.id).update(progress=1))
        with transaction.atomic(), connections["default"].cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '2s'")
            renewed, lost = jobs().renew(runs, 600)
        body.do(block.__exit__, None, None, None)
    assert renewed == {job.id for job in rows} - {locked.id}
    assert lost == set()
    assert jobs().renew(runs, 600) == ({job.id for job in rows}, set())


@postgres_only
def test_two_settles_of_the_same_runs_in_opposite_orders_do_not_wait_in_a_ring() -> None:
    """A settle that is repeated on a second connection meets its first try."""
    for _ in range(6):
        token = make_many(State.RUNNING, 300)
        runs = [run_of(job, lease=token) for job in jobs().filter(lease=token)]
        random.Random(3).shuffle(runs)
        up = [(run, "1") for run in runs]
        landed = at_once(lambda up=up: jobs().succeed(up), lambda up=up: jobs().succeed(up[::-1]))
        assert landed == [{run.id for run in runs}] * 2


def test_statements_that_change_several_live_rows_lock_them_in_order_or_pass_over() -> None:
    """One order for all, or no waiting: otherwise two of them wait in a ring [d5]."""
    changing = [
        path
        for path in sorted(picking.SQL.glob("*.sql"))
        if not path.name.endswith(".sqlite.sql")
        and re.search(r"^ *UPDATE django_jobs_job", path.read_text(), re.MULTILINE)
    ]
    assert {path.stem for path in changing} >= {"claim", "succeed", "renew", "wake"}
    for path in changing:
        text = path.read_text()
        ordered = re.search(r"ORDER BY job\.id\s+FOR NO KEY UPDATE OF job", text)
        assert ordered or "SKIP LOCKED" in text, path.name


@contextmanager
def deadlocks() -> Iterator[Counter[str]]:
    """Counts what this thread's connection meets."""
    met: Counter[str] = Counter()

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        met["statements"] += 1
        try:
            return execute(sql, params, many, context)
        except OperationalError:
            met["errors"] += 1
            raise

    with connections["default"].execute_wrapper(note):
        yield met


class Storm:
    """Parties that settle, renew, cancel, prune and publish the same rows in any order."""

    def __init__(self, count: int, seed: int) -> None:
        token = make_many(State.RUNNING, count)
        self.runs = [run_of(job, lease=token) for job in Job.objects.all()]
        self.settled: set[Any] = set()
        self.cancelled: set[Any] = set()
        self.seed = seed

    def settler(self, part: int, of: int) -> Counter[str]:
        chance = random.Random(self.seed + part)
        mine = self.runs[part::of]
        chance.shuffle(mine)
        with deadlocks() as met:
            while mine:
                group, mine = mine[:40], mine[40:]
                self.settled |= jobs().succeed([(run, "1") for run in group])
        return met

    def renewer(self, part: int) -> Counter[str]:
        chance = random.Random(self.seed * 2 + part)
        runs = list(self.runs)
        with deadlocks() as met:
            while runs:
                chance.shuffle(runs)
                _, lost = jobs().renew(runs, 60)
                runs = [run for run in runs if run.id not in lost]
        return met

    def canceller(self, part: int) -> Counter[str]:
        chance = random.Random(self.seed * 3 + part)
        with deadlocks() as met:
            for run in chance.sample(self.runs, len(self.runs) // 5):
                try:
                    jobs().cancel(run.id, tenant=None, by="", reason="")
                    self.cancelled.add(run.id)
                except NotCancellable:
                    pass
        return met

    def publisher(self, part: int) -> Counter[str]:
        chance = random.Random(self.seed * 4 + part)
        keys = [f"storm-{number}" for number in range(200)]
        with deadlocks() as met:
            for _ in range(5):
                chance.shuffle(keys)
                enqueue_many(record.call(key) for key in keys)
        return met

    def pruner(self) -> Counter[str]:
        with deadlocks() as met:
            for _ in range(20):
                jobs().prune(State.FAILED, age=0, limit=100)
                jobs().lapse(limit=100, max_crashes=3)
                jobs().wake(limit=100)
        return met

    def blow(self) -> Counter[str]:
        met = at_once(
            *[lambda part=part: self.settler(part, 3) for part in range(3)],
            *[lambda part=part: self.renewer(part) for part in range(2)],
            *[lambda part=part: self.canceller(part) for part in range(2)],
            *[lambda part=part: self.publisher(part) for part in range(2)],
            self.pruner,
        )
        return sum(met, Counter())


def weather_the_storm(count: int, seed: int) -> None:
    storm = Storm(count, seed)
    met = storm.blow()
    assert met["errors"] == 0, met
    assert not storm.settled & storm.cancelled
    assert storm.settled | storm.cancelled == {run.id for run in storm.runs}
    ended = dict(Job.objects.values_list("state").annotate(Count("id")))
    assert ended == {"done": len(storm.settled), "cancelled": len(storm.cancelled), "ready": 200}


@postgres_only
def test_settles_renewals_cancels_and_publishes_of_the_same_rows_never_deadlock() -> None:
    """CON-07. Every statement that changes several live rows locks them in one order."""
    weather_the_storm(500, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(300)
@postgres_only
def test_settles_renewals_cancels_and_publishes_never_deadlock_for_long() -> None:
    for seed in range(30):
        weather_the_storm(2000, seed)
        Job.objects.all().delete()
