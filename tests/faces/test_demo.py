"""The demo does what it says, on real files."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def demo_environment(tmp_path: Path) -> dict[str, str]:
    unwanted = ("DJANGO_SETTINGS_MODULE", "REDIS_URL")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, "DATABASE_URL": f"sqlite:///{tmp_path / 'demo.sqlite3'}", "COLUMNS": "80"}


def run_demo(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "demo", *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )


def test_the_demo_indexes_real_files_and_leaves_nothing_of_a_batch_that_rolled_back(
    demo_environment: dict[str, str], tmp_path: Path
) -> None:
    done = run_demo(demo_environment, "--limit", "120")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stored 120 documents and 120 jobs in batches of 100" in done.stdout
    assert "rolled back a batch of 100: 0 documents and 0 jobs of it exist" in done.stdout
    assert re.search(r"^  done +1\d\d$", done.stdout, re.M)
    assert "[########################################] 120/120" in done.stdout
    assert not [line for line in done.stdout.splitlines() if len(line) > 80]
    with sqlite3.connect(tmp_path / "demo.sqlite3") as database:
        states = dict(
            database.execute("SELECT state, count(*) FROM django_jobs_job GROUP BY state")
        )
        assert sum(states.values()) == 120
        assert set(states) <= {"done", "dead"}
        indexed = "SELECT count(*) FROM search_document WHERE indexed_at IS NOT NULL"
        assert database.execute(indexed).fetchone()[0] == states["done"]
        assert database.execute("SELECT count(*) FROM search_posting").fetchone()[0] > 1000
        assert not database.execute(
            "SELECT * FROM search_document WHERE path LIKE 'undone%'"
        ).fetchall()


def test_the_demo_touches_no_database_that_is_not_its_own(
    demo_environment: dict[str, str], tmp_path: Path
) -> None:
    precious = tmp_path / "shop.sqlite3"
    precious.write_bytes(b"")
    refused = run_demo({**demo_environment, "DATABASE_URL": f"sqlite:///{precious}"})
    assert refused.returncode == 1
    assert "it is not touched" in refused.stderr
    assert precious.exists()


@pytest.mark.django_db
def test_the_search_page_finds_and_escapes(client: object) -> None:
    from django.test import Client
    from django.utils import timezone

    from testproject.search.models import Document, Posting

    document = Document.objects.create(
        path="<b>socket.py", content=b"", length=4, indexed_at=timezone.now()
    )
    Posting.objects.create(word="socket", document=document, count=2)
    page = Client().get("/", {"q": "Socket <script>"}).content.decode()
    assert "&lt;b&gt;socket.py" in page
    assert "<script>" not in page
    assert "Nothing found" in Client().get("/", {"q": "absent"}).content.decode()
