"""What is shipped, and what must not be."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = {"django", "django-redis", "psycopg", "uuid6", "cronsim", "msgspec"}
MADE = {
    *(".git", ".venv", ".matrix", "build", "dist", "__pycache__", ".hypothesis"),
    *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".import_linter_cache"),
}


def project_files() -> list[Path]:
    """What git tracks or would track; without git (an unpacked archive), all but what make made."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        found = [p for p in ROOT.rglob("*") if not MADE & {*p.relative_to(ROOT).parts}]
    return sorted(path for path in found if path.is_file())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built in place by the declared backend: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("django_durable_jobs-*-py3-none-any.whl")
    return zipfile.ZipFile(path)


@pytest.fixture
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(
    wheel: zipfile.ZipFile,
) -> None:
    package = {
        path.relative_to(ROOT).as_posix()
        for path in project_files()
        if path.is_relative_to(ROOT / "django_jobs") and path.suffix != ".pyc"
    }
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == package


def test_the_wheel_holds_statements_types_and_migrations(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "django_jobs/py.typed" in names
    assert "django_jobs/migrations/0001_initial.py" in names
    assert any(name.startswith("django_jobs/models/sql/") for name in names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_needs_six_packages_and_no_others(metadata: Message) -> None:
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    assert {each.name for each in needed if "extra" not in str(each.marker)} == RUNTIME


# Places of one machine, and indexes that only some networks reach. A URL may have such a path.
PRIVATE = re.compile(
    r"(?<![\w.:/*-])/(?:home|Users)/\w"
    r"|(?<![\w.:/*-])/(?:root|work|opt/pypi)/"
    r"|(?<![\w.:/*-])/tmp/(?:w|wt)\b"
    r"|--(?:extra-)?index-url|\b(?:PIP|UV)_(?:EXTRA_)?INDEX_URL\b|\bfind-links\b"
)


def test_no_file_names_a_place_of_one_machine() -> None:
    named = []
    for path in project_files():
        if path == Path(__file__).resolve():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if PRIVATE.search(line):
                named.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert not named


def test_every_file_of_the_house_is_there() -> None:
    for name in ("LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", ".ci/run"):
        assert (ROOT / name).is_file()
