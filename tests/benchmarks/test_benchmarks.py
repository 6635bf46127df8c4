"""The benchmarks run; what they measure is not asserted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.soak
def test_every_section_runs() -> None:
    environment = {**os.environ, "DATABASE_URL": os.environ["TEST_POSTGRES_URL"]}
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--quick"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80, done.stdout
    for word in (
        "enqueue_many",
        "runworker",
        "pickup",
        "idle",
        "replay",
        "emit",
        "finished",
        "future",
        "snapshot",
    ):
        assert word in done.stdout
