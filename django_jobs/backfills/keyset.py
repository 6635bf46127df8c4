"""Pages of a queryset by key: each begins behind the last row of the one before, never at a number.

The order is total, so that no two rows share a place in it. Where a page ends is written as text
(a cursor) that holds every part of the key unchanged: microseconds, decimals, UUIDs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import router
from django.db.models import BooleanField, F, Field, Func, Model, Q, QuerySet, Value
from django.db.models.query import ModelIterable

from django_jobs.errors import DeclarationError, Terminal


class RowCompared(Func):
    """``(a, b) > (x, y)``: one range of an index, where the same in ANDs and ORs reads all ties."""

    output_field = BooleanField()
    arity = None

    OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}  # noqa: RUF012 - never changed

    def __init__(self, columns: Sequence[Any], comparison: str, values: Sequence[Any]) -> None:
        super().__init__(*columns, *values)
        self.operator = self.OPERATORS[comparison]
        self.width = len(columns)

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        """The comparison of two rows, on both engines."""
        compiled = [compiler.compile(part) for part in self.get_source_expressions()]
        parameters = [value for _, values in compiled for value in values]
        texts = [text for text, _ in compiled]
        left, right = ", ".join(texts[: self.width]), ", ".join(texts[self.width :])
        return f"(({left}) {self.operator} ({right}))", parameters


class Among(Func):
    """A column's value is one of many, which are one parameter however many they are."""

    output_field = BooleanField()
    conditional = True

    def __init__(self, column: Any, values: list[Any]) -> None:
        super().__init__(column)
        self.values = values

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        """An array on PostgreSQL, a JSON document on SQLite."""
        column = self.get_source_expressions()[0]
        text, parameters = compiler.compile(column)
        field: Any = column.output_field
        if connection.vendor == "postgresql" and all(type(value) is int for value in self.values):
            # The usual key. As text, since the driver would go through the numbers one by one.
            array = "{" + ",".join(map(str, self.values)) + "}"
            return f"({text} = ANY((%s)::bigint[]))", [*parameters, array]
        values = [field.get_db_prep_value(value, connection) for value in self.values]
        if connection.vendor == "postgresql":
            return f"({text} = ANY(%s))", [*parameters, values]
        document = json.dumps(values, default=str)
        return f"({text} IN (SELECT value FROM json_each(%s)))", [*parameters, document]


Places = tuple[Any, ...]
"""The primary key of a row and the parts of its key in the order."""


@dataclass(frozen=True, slots=True)
class Key:
    """One column of the order."""

    field: Field[Any, Any]
    descending: bool

    @property
    def order(self) -> str:
        """As ``order_by`` takes it."""
        return f"-{self.field.attname}" if self.descending else self.field.attname

    def is_(self, comparison: str, value: Any) -> Q:
        """The condition on this column, by the name of a Django lookup."""
        return Q(**{f"{self.field.attname}__{comparison}": value})


@dataclass(frozen=True, slots=True)
class Keyset:
    """A source with a total order. ``rows`` is unordered and lies in one database, ``alias``."""

    rows: QuerySet[Any]
    keys: tuple[Key, ...]
    alias: str

    @classmethod
    def of(cls, name: str, source: object, order_by: Sequence[str] = ()) -> Keyset:
        """``source``, ordered by ``order_by`` and then, unless that is unique, the primary key.

        Raises ``DeclarationError`` for what cannot be paged, with the reason.
        """
        rows = _checked(name, source)
        keys = [_key(name, rows.model, text) for text in order_by or ("pk",)]
        attnames = {key.field.attname for key in keys}
        if not _is_unique(rows.model, attnames):
            keys.append(Key(rows.model._meta.pk, keys[-1].descending))
        # Never a replica: a page must see what the page before has written.
        alias = getattr(rows, "_db", None) or router.db_for_write(rows.model)
        return cls(rows.order_by().using(alias), tuple(keys), alias)

    @property
    def model(self) -> type[Model]:
        """The model whose rows these are."""
        model: type[Model] = self.rows.model
        return model

    def between(self, after: str | None, upto: str | None) -> QuerySet[Any]:
        """The rows behind the cursor ``after``, up to and with ``upto``, in order."""
        rows = self.rows
        if after is not None:
            rows = rows.filter(self._beyond(self.values(after)))
        if upto is not None:
            rows = rows.filter(self._within(self.values(upto)))
        return self.ordered(rows)

    def ordered(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """``rows`` in the order of the keys."""
        return rows.order_by(*(key.order for key in self.keys))

    def page(self, after: str | None, upto: str | None, limit: int) -> list[Places]:
        """Where the first ``limit`` rows of ``between`` stand, without making instances."""
        columns = (key.field.attname for key in self.keys)
        rows = self.between(after, upto).prefetch_related(None)
        return list(rows.values_list("pk", *columns)[:limit])

    def among(self, pks: Sequence[Any]) -> QuerySet[Any]:
        """The rows of the source that have one of these primary keys."""
        return self.rows.filter(Among(F("pk"), list(pks)))

    def last(self) -> str | None:
        """The cursor of the last row there is now; ``None`` when there is none."""
        return self._first_of(self.rows.order_by(*(key.order for key in self.keys)).reverse())

    def first(self) -> str | None:
        """The cursor of the first row there is now; ``None`` when there is none."""
        return self._first_of(self.rows.order_by(*(key.order for key in self.keys)))

    def cursor(self, place: Places) -> str:
        """One of ``page`` as text."""
        columns = (key.field.attname for key in self.keys)
        row: Any = SimpleNamespace(**dict(zip(columns, place[1:], strict=True)))
        return json.dumps([key.field.value_to_string(row) for key in self.keys])

    def values(self, cursor: str) -> list[Any]:
        """The parts of a cursor as Python values. Raises ``Terminal`` for one of another order."""
        try:
            parts = json.loads(cursor)
            if len(parts) != len(self.keys):
                raise ValueError("it has another number of parts")
            return [key.field.to_python(p) for key, p in zip(self.keys, parts, strict=True)]
        except Exception as error:
            raise Terminal(
                f"The cursor {cursor!r} does not fit the order of {self.model._meta.label} "
                f"({', '.join(key.order for key in self.keys)}): {error}. Cancel this pass and "
                "start a new one."
            ) from error

    def _first_of(self, rows: QuerySet[Any]) -> str | None:
        rows = rows.prefetch_related(None)
        rows.query.select_for_update = False  # Bounds are read outside any transaction.
        found = rows.values_list("pk", *(key.field.attname for key in self.keys))[:1]
        return next(map(self.cursor, found), None)

    def _beyond(self, values: Sequence[Any]) -> Q:
        """Strictly behind these values in the order."""
        if self._is_mixed:
            return self._beyond_mixed(values)
        return self._compared(values, "lt" if self.keys[0].descending else "gt")

    def _within(self, values: Sequence[Any]) -> Q:
        """Before these values in the order, or at them."""
        if self._is_mixed:
            return ~self._beyond_mixed(values)
        return self._compared(values, "gte" if self.keys[0].descending else "lte")

    @property
    def _is_mixed(self) -> bool:
        return len({key.descending for key in self.keys}) > 1

    def _compared(self, values: Sequence[Any], comparison: str) -> Q:
        if len(self.keys) == 1:
            return self.keys[0].is_(comparison, values[0])
        given = [Value(v, key.field) for key, v in zip(self.keys, values, strict=True)]
        return Q(RowCompared([F(key.field.attname) for key in self.keys], comparison, given))

    def _beyond_mixed(self, values: Sequence[Any]) -> Q:
        """For ascending and descending parts in one order, which no row comparison can say."""
        beyond, ties = Q(pk__in=[]), Q()
        for key, value in zip(self.keys, values, strict=True):
            beyond |= ties & key.is_("lt" if key.descending else "gt", value)
            ties &= key.is_("exact", value)
        # Said once more, for the index: where the first part can begin.
        first = self.keys[0]
        return beyond & first.is_("lte" if first.descending else "gte", values[0])


def _checked(name: str, source: object) -> QuerySet[Any]:
    if not isinstance(source, QuerySet):
        raise DeclarationError(
            f"{name}: source returned {type(source).__name__}; return a queryset, such as "
            "Model.objects.filter(...)."
        )
    if source.query.is_sliced:
        raise DeclarationError(f"{name}: source is sliced. Leave the slice out; pages are made.")
    if source.query.combinator:
        raise DeclarationError(
            f"{name}: source is a {source.query.combinator}, which cannot be continued at a key. "
            "Write one filter, or one backfill for each part."
        )
    if source._iterable_class is not ModelIterable:
        raise DeclarationError(
            f"{name}: source yields values, not rows. Leave out values() and values_list(); "
            "only() limits the columns."
        )
    return source


def _key(name: str, model: type[Model], text: str) -> Key:
    column = text.removeprefix("-")
    options = model._meta
    if column == "pk":
        field: Any = options.pk
    else:
        try:
            field = options.get_field(column)
        except FieldDoesNotExist:
            field = next((f for f in options.concrete_fields if f.attname == column), None)
    if field is None or not getattr(field, "concrete", False) or field.many_to_many:
        raise DeclarationError(
            f"{name}: order_by={text!r} is no column of {options.label}. Name one of its own "
            "columns, with - in front for descending."
        )
    if field.null:
        raise DeclarationError(
            f"{name}: {options.label}.{field.name} may be NULL, and NULL has no place in an order: "
            "such rows would be left out. Order by columns that cannot be NULL."
        )
    return Key(field, text.startswith("-"))


def _is_unique(model: type[Model], attnames: set[str]) -> bool:
    options = model._meta
    sets = [{f.attname} for f in options.concrete_fields if f.unique]
    sets += [_attnames(model, names) for names in options.unique_together]
    sets += [_attnames(model, c.fields) for c in options.total_unique_constraints]
    return any(columns <= attnames for columns in sets)


def _attnames(model: type[Model], names: Sequence[str]) -> set[str]:
    return {getattr(model._meta.get_field(name), "attname", name) for name in names}
