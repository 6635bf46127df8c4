"""The rules of the package's shape: budgets, names, words and layers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "django_jobs"

MAX_FILE = 300
MAX_FUNCTION = 40
MAX_BRANCHES = 8
BANNED_MODULES = {"utils", "helpers", "common", "manager", "service"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
)

MODULES = sorted(p for p in PACKAGE.rglob("*.py") if "migrations" not in p.parts)
SQL = sorted(PACKAGE.rglob("*.sql"))

each_module = pytest.mark.parametrize(
    "module", MODULES, ids=[str(p.relative_to(PACKAGE)) for p in MODULES]
)


def parse(module: Path) -> ast.Module:
    return ast.parse(module.read_text(), str(module))


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """What ``function`` holds without the functions inside it, which have their own budget."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function):
            waiting.extend(ast.iter_child_nodes(node))


def docstrings(tree: ast.AST) -> set[int]:
    """The ids of the constants that are prose: strings that stand alone as a statement."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def in_code(tree: ast.AST) -> Iterator[str]:
    """Every piece of text that the code uses, without docstrings."""
    prose = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


@each_module
def test_a_file_fits_its_budget(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MAX_FILE


def length(function: Function) -> int:
    """Lines without the docstring, which may say as much as a caller needs."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function):
        prose = function.body[0]
        lines -= (prose.end_lineno or 0) - prose.lineno + 1
    return lines


@each_module
def test_a_function_fits_its_budget(module: Path) -> None:
    long = {
        f"{f.name}, line {f.lineno}": lines
        for f in functions(parse(module))
        if (lines := length(f)) > MAX_FUNCTION
    }
    assert not long


@each_module
def test_a_function_has_few_branches(module: Path) -> None:
    branched = {
        f"{f.name}, line {f.lineno}": count
        for f in functions(parse(module))
        if (count := sum(isinstance(node, BRANCHES) for node in own_nodes(f))) > MAX_BRANCHES
    }
    assert not branched


@each_module
def test_a_module_is_named_after_what_it_holds(module: Path) -> None:
    assert not BANNED_MODULES & {*module.relative_to(PACKAGE).with_suffix("").parts}


@each_module
def test_everything_public_says_what_it_means(module: Path) -> None:
    tree = parse(module)
    undocumented = ["the module"] if tree.body and not ast.get_docstring(tree) else []
    # The module and its classes; a method that takes over a documented one is ruff's (D102).
    undocumented += [
        f"{node.name}, line {node.lineno}"
        for node in tree.body
        if isinstance(node, ast.ClassDef | Function)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not (node.name == "Command" and "commands" in module.parts)
        and not any(getattr(d, "id", "") == "overload" for d in node.decorator_list)
    ]
    assert not undocumented


@each_module
def test_bulk_create_never_swallows_a_conflict(module: Path) -> None:
    """On SQLite these swallow other violations too, and they cannot name a partial index."""
    swallowing = [
        f"line {node.lineno}"
        for node in ast.walk(parse(module))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") in {"bulk_create", "abulk_create"}
        and {"ignore_conflicts", "update_conflicts"} & {k.arg for k in node.keywords}
    ]
    assert not swallowing


# The start of the transaction, which is not when the statement runs. `datetime('now')` is SQLite's.
FROZEN_CLOCK = re.compile(
    r"\b(now|transaction_timestamp)\s*\(\s*\)|\bcurrent_timestamp\b", re.IGNORECASE
)


@each_module
def test_no_statement_in_python_asks_for_the_clock_of_its_transaction(module: Path) -> None:
    assert not [text for text in in_code(parse(module)) if FROZEN_CLOCK.search(text)]


def test_no_sql_file_asks_for_the_clock_of_its_transaction() -> None:
    frozen = [
        f"{path.name}:{number}"
        for path in SQL
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if FROZEN_CLOCK.search(line.partition("--")[0])
    ]
    assert not frozen


def test_redis_is_named_in_the_lanes_only() -> None:
    """Redis is advice: one package knows it, and everything else works without it."""
    named = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*")
        if path.is_file()
        and path.suffix not in {".pyc"}
        and "lanes" not in path.relative_to(PACKAGE).parts
        and "redis" in path.read_text().lower()
    ]
    assert not named


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_arrows_point_down_only() -> None:
    linted = run(
        sys.executable,
        "-c",
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())",
    )
    assert linted.returncode == 0, linted.stdout


def test_make_lint_checks_style_format_types_and_layers() -> None:
    planned = run("make", "--dry-run", "--assume-old=.venv/.ready", "lint").stdout
    for command in ("ruff check", "ruff format --check", "mypy", "lint-imports"):
        assert re.search(rf"^\S*bin/{command}$", planned, re.MULTILINE), planned


def test_ci_lints_and_then_ends_with_the_tests() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert "set -euo pipefail" in lines
    assert lines[-2:] == ["make lint", "make test"]
