"""Money is moved once: whatever happens to the run, and at whichever of its statements."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.workers import ROOT, environment

PAID = {"from": 90, "to": 10}
UNPAID = {"from": 100, "to": 0}


def rounds(job: str, what: str) -> list[dict[str, Any]]:
    """What was found after something happened at each boundary of the job, in their order."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.steps.crashing", job, what],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


JOBS = ["tests.app.tasks.pays", "tests.app.tasks.pays_in_a_block", "tests.app.jobs.transfers"]
each_job = pytest.mark.parametrize("job", JOBS, ids=lambda name: name.rpartition(".")[2])


def skip_if_elsewhere(job: str, jobs_alias: str) -> None:
    if job.endswith("transfers") and jobs_alias != "default":
        pytest.skip("its rows live in the database `default`")


@each_job
def test_a_run_killed_at_any_statement_moves_the_money_once(jobs_alias: str, job: str) -> None:
    skip_if_elsewhere(job, jobs_alias)
    found = rounds(job, "kill")
    assert len(found) > 5
    for one in found:
        assert one == {"state": "done", "balances": PAID, "transfers": 1}


def jobs_and(*happenings: str) -> pytest.MarkDecorator:
    """Each job with each of these; the first pair always, the rest when there is time."""
    pairs = [(job, what) for job in JOBS for what in happenings]
    names = [f"{job.rpartition('.')[2]}-{what}" for job, what in pairs]
    values = [
        pytest.param(*pair, id=name, marks=() if number == 0 else pytest.mark.soak)
        for number, (pair, name) in enumerate(zip(pairs, names, strict=True))
    ]
    return pytest.mark.parametrize(("job", "what"), values)


@jobs_and("cancel", "supersede")
def test_a_run_stopped_at_any_statement_moves_the_money_once_or_not_at_all(
    jobs_alias: str, job: str, what: str
) -> None:
    skip_if_elsewhere(job, jobs_alias)
    found = rounds(job, what)
    unpaid = {"state": "cancelled", "balances": UNPAID, "transfers": 0}
    for one in found:
        paid = {"state": one["state"], "balances": PAID, "transfers": 1}
        assert one in (unpaid, paid)
    assert unpaid in found
    assert {"state": "done", "balances": PAID, "transfers": 1} in found


@jobs_and("lapse")
def test_a_run_taken_over_at_any_statement_moves_the_money_once(
    jobs_alias: str, job: str, what: str
) -> None:
    skip_if_elsewhere(job, jobs_alias)
    for one in rounds(job, what):
        assert one == {"state": "done", "balances": PAID, "transfers": 1}
