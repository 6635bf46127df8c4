"""The documents about lanes are true: examples run, and every test that a row names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from django_jobs.lanes import Lane, Release, Released
from tests import servers
from tests.lanes.looking import held_by

ROOT = Path(__file__).resolve().parent.parent.parent
HOW_TO = (ROOT / "docs/how-to/lanes-primitive.md").read_text()
REFERENCE = (ROOT / "docs/reference/lanes.md").read_text()


def example(first_line: str) -> dict[str, Any]:
    """What the example that begins with ``first_line`` defines."""
    blocks = re.findall(r"```python\n(.*?)```", HOW_TO, re.S)
    (text,) = [block for block in blocks if block.startswith(f"# {first_line}\n")]
    names: dict[str, Any] = {}
    exec(compile(text, first_line, "exec"), names)
    return names


@pytest.fixture
def documented(settings: Any, db: None, private_redis: servers.RedisServer) -> servers.RedisServer:
    """The settings of the how-to, on a server of the test's own."""
    written = example("settings.py")
    written["CACHES"]["lanes"]["LOCATION"] = private_redis.url(db=5)
    settings.CACHES, settings.DJANGO_JOBS = written["CACHES"], written["DJANGO_JOBS"]
    return private_redis


def test_the_report_of_the_how_to_is_rendered_and_gives_way_to_a_newer_one(
    documented: servers.RedisServer,
) -> None:
    render, lane = example("reports.py")["render"], Lane("render-report", "", "7")
    assert render(7, 1, ["a", "b"]) == ["A", "B"]
    assert held_by(lane) is None

    def interrupted() -> Any:
        yield "a"
        lane.claim("version 3", 3)
        yield "b"

    assert render(7, 2, interrupted()) is None
    assert held_by(lane) == "version 3"
    documented.stop()
    assert render(7, 4, ["a"]) == ["A"]


def test_the_hand_over_of_the_how_to_is_taken_back_when_it_fails(
    documented: servers.RedisServer,
) -> None:
    hand_over, lane = example("handing_over.py")["hand_over"], Lane("render-report", "", "8")
    sent: list[tuple[int, int]] = []
    hand_over(8, 1, lambda *what: sent.append(what))

    def fail(*_: Any) -> None:
        raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        hand_over(8, 2, fail)
    assert held_by(lane) == "version 1"
    assert lane.release("version 2", 2) == Released(Release.NOT_MINE)
    hand_over(8, 3, lambda *what: sent.append(what))
    hand_over(8, 2, lambda *what: sent.append(what))
    assert sent == [(8, 1), (8, 3)]


def test_every_row_of_the_reference_names_tests_that_exist() -> None:
    written = {
        node.name
        for file in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not set(re.findall(r"`(test_\w+)`", REFERENCE)) - written
    rows = re.findall(r"^\| ([\dRST, ]*\d) \| [^|]+ \| ([^|]+) \|$", REFERENCE, re.M)
    assert len(rows) > 60
    assert not [row for row in rows if "`test_" not in row[1] and "cannot occur: " not in row[1]]


def test_the_numbers_of_cases_have_rows() -> None:
    rows = re.findall(r"^\| ([\dRST, ]*\d) \|", REFERENCE, re.M)
    numbers = {number for row in rows for number in row.split(", ")}
    ours = {str(n) for n in range(1, 63)} - {"17", "18"}
    assert not ours - numbers
