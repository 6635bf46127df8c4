"""What a backfill does, as 32 hex characters: its functions and the helpers they name."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any


def checksum(source: Callable[..., Any], handle: Callable[..., Any]) -> str:
    """Of the code of ``source``, of ``handle`` and of the functions of the project they call.

    Comments, layout, docstrings and the numbers between the decorator's parentheses do not count:
    they change nothing that is stored. Other packages do not count either.
    """
    found: dict[str, str] = {}
    for function in (source, handle):
        _collect(function, function.__module__.partition(".")[0], found)
    text = "\x00".join(f"{path}\x01{code}" for path, code in sorted(found.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _collect(function: Any, package: str, found: dict[str, str]) -> None:
    path = f"{function.__module__}.{function.__qualname__}:{function.__code__.co_argcount}"
    if path in found:
        return
    found[path] = _essence(function)
    for helper in _named(function):
        if helper.__module__.partition(".")[0] == package:
            _collect(helper, package, found)


def _named(function: FunctionType) -> Iterator[FunctionType]:
    """The plain functions that the code of ``function`` names."""
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    for name in sorted(names):
        value = function.__globals__.get(name)
        if isinstance(value, FunctionType):
            yield value


def _essence(function: Any) -> str:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return _compiled(function.__code__)  # Made without a file, or a lambda amid a call.
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            node.decorator_list = []
            if ast.get_docstring(node):
                node.body = node.body[1:] or [ast.Pass()]
            return ast.dump(node)
    return _compiled(function.__code__)


def _compiled(code: CodeType) -> str:
    constants = [_constant(constant) for constant in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _constant(value: Any) -> str:
    if isinstance(value, frozenset):  # Whose order is another one in each process.
        return repr(sorted(map(repr, value)))
    return _compiled(value) if isinstance(value, CodeType) else repr(value)
