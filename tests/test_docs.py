"""What the documents say is what happens: their examples run, their tables are complete."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from django_jobs import backfills, conf, definitions
from django_jobs.models import Backfill, Job
from django_jobs.operations.backfilling import start_backfill
from django_jobs.testing import drain
from tests.app.models import Item
from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODELS = """
from django.db import models

class Order(models.Model):
    charged = models.BooleanField(default=False)
"""


def blocks(document: str, language: str = "python") -> list[str]:
    text = (ROOT / document).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def block(document: str, marker: str) -> str:
    (found,) = [text for text in blocks(document) if marker in text]
    return found


def settings_table() -> str:
    """The settings with their defaults and meanings, read from the source."""
    tree = ast.parse((ROOT / "django_jobs" / "conf.py").read_text())
    (settings,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Settings"]
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for node, after in zip(settings.body, settings.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert node.value is not None
            assert isinstance(after, ast.Expr), f"{node.target.id} has no docstring"
            assert isinstance(after.value, ast.Constant)
            default = ast.unparse(node.value)
            if default.startswith("field("):  # by state: done, failed, dead, cancelled
                default = "7, 30, 90, 30 days"
            meaning = " ".join(str(after.value.value).split()).replace("``", "`")
            lines.append(f"| `{node.target.id.upper()}` | `{default}` | {meaning} |")
    return "\n".join(lines)


def test_the_table_of_settings_is_the_code_s() -> None:
    assert settings_table() in (ROOT / "docs/reference/settings.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())
    assert not [link for link in links if not (document.parent / link).exists()]


def test_every_make_target_that_a_document_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = {
        t for d in DOCUMENTS for t in re.findall(r"^(?:\$ )?make ([a-z-]+)", d.read_text(), re.M)
    }
    assert {"demo", "test"} <= named
    assert not {target for target in named if not re.search(rf"^{target}:", makefile, re.M)}


class Newcomer:
    """A fresh project in a folder of its own, with its own Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "site"
        self.folder.mkdir()
        venv.create(folder / "venv", with_pip=True)
        self.python = folder / "venv" / "bin" / "python"
        # The libraries are those of this run; the package itself is installed as by anyone.
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        packages = folder / "venv" / "lib" / version / "site-packages"
        (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.run("-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", str(ROOT))

    def environment(self) -> dict[str, str]:
        unwanted = ("DJANGO_SETTINGS_MODULE", "PYTHONPATH", "DATABASE_URL")
        return {k: v for k, v in os.environ.items() if k not in unwanted}

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def write(self, path: str, text: str) -> None:
        with (self.folder / path).open("a") as file:
            file.write("\n" + text)


def test_a_newcomer_s_project_does_what_the_readme_says(tmp_path: Path) -> None:
    site = Newcomer(tmp_path)
    site.run("-m", "django", "startproject", "site_", ".")
    site.run("manage.py", "startapp", "shop")
    assert block("README.md", "# settings.py").strip().endswith('[..., "django_jobs"]')
    site.write("site_/settings.py", 'INSTALLED_APPS += ["django_jobs", "shop"]')
    (site.folder / "shop" / "models.py").write_text(MODELS)
    site.write("shop/jobs.py", block("README.md", "# shop/jobs.py"))
    site.write("shop/views.py", block("README.md", "# shop/views.py"))
    (site.folder / "shop" / "tests.py").write_text(block("docs/how-to/testing.md", "drain()"))
    site.write("shop/jobs.py", block("docs/how-to/steps.md", "# shop/jobs.py"))
    site.write("shop/tests.py", block("docs/how-to/steps.md", "drain()"))
    site.run("manage.py", "makemigrations", "shop")
    commands = "".join(blocks("README.md", "console"))
    assert "$ python manage.py migrate\n$ python manage.py runworker\n" in commands
    site.run("manage.py", "migrate")
    place = "from shop.views import place_order; place_order()"
    site.run("manage.py", "shell", "-c", place)
    worker = subprocess.Popen(
        [str(site.python), "manage.py", "runworker"], cwd=site.folder, env=site.environment()
    )
    try:
        ask = "from shop.models import Order; print('charged', Order.objects.get().charged)"
        until(lambda: "charged True" in site.run("manage.py", "shell", "-c", ask), 30)
    finally:
        worker.terminate()
    assert worker.wait(30) == 0
    site.run("manage.py", "test")
    site.run("manage.py", "check")


def guarantees() -> dict[str, list[str]]:
    """Number of each guarantee, and the tests that its row names."""
    text = (ROOT / "docs/reference/guarantees.md").read_text()
    rows = re.findall(r"^\| ([A-Z]\d+) \| [^|]+ \| ([^|]+) \|$", text, re.M)
    return {number: re.findall(r"`(test_\w+)`", proof) or [proof.strip()] for number, proof in rows}


def written_tests() -> set[str]:
    return {
        node.name
        for file in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_guarantee_names_tests_that_exist() -> None:
    named = {test for tests in guarantees().values() for test in tests}
    missing = {test for test in named - written_tests() if not test.startswith("not built yet: ")}
    assert not missing


OVERFLOW = "docs/reference/overflow.md"


def test_every_case_of_the_overflow_buffer_names_tests_that_exist() -> None:
    text = (ROOT / OVERFLOW).read_text()
    assert not set(re.findall(r"`(test_\w+)`", text)) - written_tests()
    first = [row.split(" | ")[0].strip("| ") for row in re.findall(r"^\| [\dR].*$", text, re.M)]
    told = set()
    for numbers in ", ".join(first).split(", "):
        letter = "R" if numbers.startswith("R") else ""
        ends = [int(number.strip("R")) for number in numbers.split(" to ")]
        told |= {f"{letter}{number}" for number in range(ends[0], ends[-1] + 1)}
    wanted = {*range(81, 85), 97, *range(99, 139)}
    assert told == {str(n) for n in wanted} | {f"R{n}" for n in range(24, 38)}


def test_the_settings_of_the_overflow_buffer_are_as_its_page_shows_them() -> None:
    shown: dict[str, Any] = {}
    exec(block(OVERFLOW, "# settings.py"), shown)
    settings = conf.parse(shown["DJANGO_JOBS"])
    assert (settings.ready_limit("imports"), settings.ready_limit("mail")) == (500, 10_000)


def test_no_required_guarantee_is_left_out() -> None:
    assert [n for n in guarantees() if n.startswith("S")] == [f"S{n}" for n in range(1, 31)]
    unbuilt = [n for n, tests in guarantees().items() if tests[0].startswith("not built yet")]
    assert unbuilt == []


def test_the_page_on_lanes_does_what_it_says(jobs_alias: str) -> None:
    module: dict[str, object] = {"__name__": "tests.page_on_lanes"}
    definitions.allow("tests.page_on_lanes")
    settings_block, *_ = [t for t in blocks("docs/how-to/lanes.md") if "# settings.py" in t]
    configured: dict[str, Any] = {"CACHES": {}}
    exec(compile(settings_block, "settings.py", "exec"), configured)
    assert conf.parse(configured["DJANGO_JOBS"]).lanes_cache in configured["CACHES"]
    for text in (t for t in blocks("docs/how-to/lanes.md") if t != settings_block):
        exec(compile(text, "docs/how-to/lanes.md", "exec"), module)
    assert [type(ran.outcome).__name__ for ran in drain()] == ["Succeeded"]
    assert module["texts"] == {7: "third"}
    assert sorted(Job.objects.values_list("state", flat=True)) == ["cancelled", "cancelled", "done"]


def test_the_page_on_backfills_does_what_it_says(jobs_alias: str, monkeypatch: Any) -> None:
    """``Order`` is the tests' ``Item``, its ``total`` the column ``rank``."""
    texts = [_in_our_terms(text) for text in blocks("docs/how-to/backfills.md")]
    module: dict[str, Any] = {"__name__": "shop.backfills", "alias": jobs_alias}
    definitions.allow("shop.backfills")
    for text in texts:
        exec(compile(text, "docs/how-to/backfills.md", "exec"), module)
    made = [module[name] for name in ("fill_totals", "fill_shop", "fill_every_shop")]
    Item.objects.using(jobs_alias).bulk_create(Item(tenant="acme") for _ in range(3))
    commands = re.findall(r"manage.py backfill (.+)", "".join(blocks(PAGE_ON_BACKFILLS, "console")))
    assert len(commands) == 3
    for command in commands:
        words = [word for word in command.split() if word != "--wait"]
        with contextlib.suppress(SystemExit):  # Others are declared too, and pending.
            call_command("backfill", *words, stdout=io.StringIO())
    start_backfill(made[1], tenant="acme")
    start_backfill(made[2])
    assert {type(ran.outcome).__name__ for ran in drain()} == {"Succeeded"}
    assert set(Backfill.objects.values_list("name", "state")) == {
        (one.name, "completed") for one in made
    }
    [operation] = module["Migration"].operations
    assert operation.name == made[0].name
    for one in made:
        backfills.declared._backfills.pop(one.name)


PAGE_ON_BACKFILLS = "docs/how-to/backfills.md"


def _in_our_terms(text: str) -> str:
    for theirs, ours in {
        "from shop.models import Order": "from tests.app.models import Item",
        "Order.objects": "Item.objects.using(alias)",
        "shop=": "tenant=",
        "total=": "rank=",
        "rank=None": "rank=0",
        "update(rank=0)": "update(rank=1)",
    }.items():
        text = text.replace(theirs, ours)
    return text
