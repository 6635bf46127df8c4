"""The demo does what it says, on real files."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connections
from django.test import Client, TestCase
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_jobs import enqueue, get
from django_jobs.models import Attempt
from django_jobs.operations import Standing
from django_jobs.testing import drain
from testproject.search import fresh
from testproject.search.finding import search
from testproject.search.jobs import index_document
from testproject.search.models import Document, Posting

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
    assert "[########################################] 120/120  " in done.stdout
    assert re.search(r"20 enqueued: \d+ superseded while they waited, \d+ while they", done.stdout)
    assert 'done: edit 20; the text that is indexed: """Edit 20' in done.stdout
    assert "killed the worker process with kill -9" in done.stdout
    assert "3 mails, each once" in done.stdout
    assert "manage.py backfill pending ends with 1: 121 rows to fill" in done.stdout
    assert re.search(r"kill -9 of worker \S+ after \d+ rows", done.stdout)
    assert "resumed: 121 rows in " in done.stdout
    assert "manage.py backfill pending ends with 0\n" in done.stdout
    assert not [line for line in done.stdout.splitlines() if len(line) > 80]
    with sqlite3.connect(tmp_path / "demo.sqlite3") as database:
        states = dict(
            database.execute("SELECT state, count(*) FROM django_jobs_job GROUP BY state")
        )
        assert set(states) <= {"done", "dead", "cancelled"}
        # One edit, one digest, and one backfill.
        assert states["done"] + states["dead"] == 120 + 3
        indexed = "SELECT count(*) FROM search_document WHERE indexed_at IS NOT NULL"
        assert database.execute(indexed).fetchone()[0] == states["done"] - 2
        ended = "SELECT result FROM django_jobs_job WHERE lane IS NOT NULL AND state = 'done'"
        assert database.execute(ended).fetchall()[-1] == ("20",)
        assert database.execute("SELECT count(*) FROM search_posting").fetchone()[0] > 1000
        assert not database.execute(
            "SELECT * FROM search_document WHERE path LIKE 'undone%'"
        ).fetchall()


def test_the_full_demo_runs_on_servers_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.full_demo", "--limit", "30"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"PostgreSQL \d+.* (Valkey|Redis) \d+", done.stdout)
    assert re.search(r"a stopped run knew \d+ ms after the newer edit was published", done.stdout)
    assert "3 mails, each once" in done.stdout


def test_the_demo_touches_no_database_that_is_not_its_own(
    demo_environment: dict[str, str], tmp_path: Path
) -> None:
    precious = tmp_path / "shop.sqlite3"
    precious.write_bytes(b"")
    refused = run_demo({**demo_environment, "DATABASE_URL": f"sqlite:///{precious}"})
    assert refused.returncode == 1
    assert "it is not touched" in refused.stderr
    assert precious.exists()


def test_the_demo_makes_no_superuser_on_a_database_server(
    demo_environment: dict[str, str],
) -> None:
    server = os.environ["TEST_POSTGRES_URL"]
    refused = run_demo({**demo_environment, "DATABASE_URL": server})
    assert refused.returncode == 1
    assert "PostgreSQL; it is not touched" in refused.stderr


def test_the_demo_remakes_its_own_file_and_keeps_anothers_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / fresh.NAME
    monkeypatch.setattr(fresh, "connection", connections["sqlite"])
    monkeypatch.setitem(connections["sqlite"].settings_dict, "NAME", str(path))
    assert fresh.remake() == path
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE old (id)")
    fresh.remake()
    with closing(sqlite3.connect(path)) as made:
        assert not made.execute("SELECT * FROM sqlite_master").fetchall()
        made.execute("PRAGMA application_id = 0")
    for content in (path.read_bytes(), b"no database at all"):
        path.write_bytes(content)
        with pytest.raises(fresh.NotTheDemos, match="not made by the demo"):
            fresh.remake()
        assert path.read_bytes() == content


class IndexingTests(TestCase):
    def index(self, content: bytes) -> Standing:
        document = Document.objects.create(path="a.py", content=content)
        job = enqueue(index_document, document_id=document.pk)
        drain()
        return get(job.id)

    def test_indexing_again_replaces_the_postings(self) -> None:
        done = self.index(b'class HTTPServer:\n    """Serves http."""\n')
        postings = set(Posting.objects.values_list("word", "count"))
        assert (done.state, done.result) == ("done", 3)
        assert postings == {("http", 2), ("server", 1), ("serves", 1)}
        index_document(Document.objects.get().pk)
        assert set(Posting.objects.values_list("word", "count")) == postings

    def test_a_file_with_a_byte_order_mark_is_python(self) -> None:
        assert self.index(b"\xef\xbb\xbfdef f(): pass\n").state == "done"

    def test_what_is_not_utf8_or_not_python_is_dead_after_one_attempt(self) -> None:
        for content, error in (
            (b"# \xe9\n", "UnicodeDecodeError"),
            (b"print 1\n", "SyntaxError"),
        ):
            dead = self.index(content)
            assert (dead.state, dead.attempt) == ("dead", 1)
            assert dead.reason == f"{error} is terminal by the retry policy"
            assert Attempt.objects.get(job_id=dead.job_id).error_class.endswith(error)
            document = Document.objects.get()
            assert document.indexed_at is None
            assert not document.posting_set.exists()
            document.delete()


@pytest.mark.django_db
def test_a_search_reads_no_contents() -> None:
    document = Document.objects.create(
        path="socket.py", content=b"x" * 9999, length=4, indexed_at=timezone.now()
    )
    Posting.objects.create(word="socket", document=document, count=2)
    with CaptureQueriesContext(connections["default"]) as asked:
        ((found, score),) = search("socket")
    assert (found.path, score > 0) == ("socket.py", True)
    assert not [query for query in asked if '"content"' in query["sql"]]


@pytest.mark.django_db
def test_the_search_page_finds_and_escapes() -> None:
    document = Document.objects.create(
        path="<b>socket.py", content=b"", length=4, indexed_at=timezone.now()
    )
    Posting.objects.create(word="socket", document=document, count=2)
    page = Client().get("/", {"q": "Socket <script>"}).content.decode()
    assert "&lt;b&gt;socket.py" in page
    assert "<script>" not in page
    assert "Nothing found" in Client().get("/", {"q": "absent"}).content.decode()
