"""Arguments and results make the trip through JSON unchanged, or are refused at the call."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
import uuid6
from django.contrib.auth.models import Group
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobs.errors import DeclarationError, PayloadError, ResultError
from django_jobs.payloads import MAX_DEPTH, Arguments, Result, decode_value, encode_value

LIMIT = 1_000_000
PARIS = ZoneInfo("Europe/Paris")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Status(enum.StrEnum):
    DRAFT = "draft"


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal
    taken: dt.datetime | None = None


@dataclasses.dataclass(eq=False)
class Unequal:
    number: int


class Order(msgspec.Struct):
    id: uuid.UUID
    lines: list[Line]


class Point(NamedTuple):
    x: int
    y: int


def untyped(value, other=None): ...


def accepting(declared: Any) -> Arguments:
    def body(value): ...

    body.__annotations__["value"] = declared
    return Arguments.of(body)


def trip(arguments: Arguments, value: Any) -> Any:
    """What a worker gets for ``value``, which must also be what the caller was told."""
    text, decoded = arguments.encode(arguments.bind((value,), {}), LIMIT)
    read = arguments.decode(text)
    assert repr(read) == repr(decoded) or read == decoded  # Sets have no order in repr.
    return read["value"]


def refusal(arguments: Arguments, value: Any) -> str:
    with pytest.raises(PayloadError) as refused:
        arguments.encode(arguments.bind((value,), {}), LIMIT)
    return str(refused.value)


def nested(levels: int, innermost: Any = 1) -> Any:
    for _ in range(levels):
        innermost = [innermost]
    return innermost


# --- the trip ------------------------------------------------------------------------------------

AWARE = st.datetimes(
    timezones=st.sampled_from([dt.UTC, PARIS, ZoneInfo("Asia/Kolkata"), dt.timezone.max]),
    min_value=dt.datetime(1990, 1, 1),
    max_value=dt.datetime(2090, 1, 1),
)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
WIRE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
TYPED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXT),
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (bytes, st.binary(max_size=30)),
    (dt.datetime, st.datetimes()),
    (dt.datetime, AWARE),
    (dt.date, st.dates()),
    (dt.time, st.times()),
    (dt.timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (uuid.UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Literal["a", 1], st.sampled_from(["a", 1])),
    (tuple[int, str], st.tuples(st.integers(), TEXT)),
    (set[int], st.sets(st.integers())),
    (frozenset[str], st.frozensets(TEXT)),
    (dict[int, dt.date], st.dictionaries(st.integers(), st.dates(), max_size=4)),
    (list[Decimal], st.lists(st.decimals(allow_nan=False, allow_infinity=False), max_size=4)),
    (Line, st.builds(Line, TEXT, st.decimals(allow_nan=False, allow_infinity=False), AWARE)),
    (Order, st.builds(Order, st.uuids(), st.builds(lambda: [Line("a", Decimal("1.10"))]))),
    (Point, st.builds(Point, st.integers(), st.integers())),
    (int | str | None, st.integers() | TEXT | st.none()),
    (Any, WIRE),
]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_what_is_accepted_comes_back_equal_and_of_the_same_type(data: st.DataObject) -> None:
    declared, values = data.draw(st.sampled_from(TYPED))
    value = data.draw(values)
    back = trip(accepting(declared), value)
    assert type(back) is type(value)
    if isinstance(value, dt.datetime) and value.tzinfo:
        assert back.astimezone(dt.UTC) == value.astimezone(dt.UTC)
    elif not isinstance(value, Line):
        assert back == value
    if isinstance(value, Decimal):
        assert str(back) == str(value)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.decimals()
    | st.uuids()
    | st.datetimes()
    | st.dates()
    | st.binary(max_size=5)
    | st.sampled_from([Colour.RED, Level.LOW, Status.DRAFT]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.booleans(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(ANYTHING)
def test_without_an_annotation_a_value_comes_back_equal_or_is_refused(value: Any) -> None:
    arguments = accepting(Any)
    try:
        text, decoded = arguments.encode({"value": value}, LIMIT)
    except PayloadError:
        return
    assert decoded["value"] == value
    assert "\\u0000" not in text.replace("\\\\", "")
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


def test_names_and_defaults_of_a_call_are_bound_as_python_binds_them() -> None:
    def body(order_id: int, note: str = "none", *, loud: bool = False): ...

    arguments = Arguments.of(body)
    assert arguments.names == ("order_id", "note", "loud")
    assert arguments.bind((1,), {}) == {"order_id": 1, "note": "none", "loud": False}
    assert arguments.bind((1, "x"), {"loud": True}) == {"order_id": 1, "note": "x", "loud": True}
    assert list(arguments.bind((), {"loud": True, "order_id": 1})) == list(arguments.names)


def test_an_argument_may_be_called_like_an_attribute_of_anything() -> None:
    def body(__weird, f1, encode, cls, type: int, class_=1): ...

    arguments = Arguments.of(body)
    bound = arguments.bind((1, 2, 3, 4, 5), {})
    text, decoded = arguments.encode(bound, LIMIT)
    assert decoded == bound == arguments.decode(text)


def test_a_job_without_arguments_has_an_empty_payload() -> None:
    def body(): ...

    assert Arguments.of(body).encode({}, LIMIT) == ("{}", {})


def test_a_mutable_default_is_not_shared_between_runs() -> None:
    def body(tags: list[str] = ["a"]): ...  # noqa: B006

    arguments = Arguments.of(body)
    first = arguments.decode("{}")
    first["tags"].append("b")
    assert arguments.decode("{}") == {"tags": ["a"]}


@pytest.mark.parametrize("fold, offset", [(0, 2), (1, 1)])
def test_the_doubled_hour_of_autumn_keeps_its_fold(fold: int, offset: int) -> None:
    value = dt.datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=fold)
    expected = dt.datetime(2026, 10, 25, 2 - offset, 30, tzinfo=dt.UTC)
    assert trip(accepting(dt.datetime), value) == expected
    assert trip(accepting(list[dt.datetime]), [value]) == [expected]
    assert trip(accepting(Line), Line("a", Decimal(1), value)).taken == expected


def test_an_offset_that_json_would_round_is_refused() -> None:
    before_standard_time = dt.datetime(1900, 1, 1, tzinfo=PARIS)
    assert "would come back as" in refusal(accepting(dt.datetime), before_standard_time)


def test_a_time_whose_zone_would_be_lost_is_refused() -> None:
    assert trip(accepting(dt.time), dt.time(1, tzinfo=dt.UTC)) == dt.time(1, tzinfo=dt.UTC)
    assert "arguments['value']" in refusal(accepting(dt.time), dt.time(1, tzinfo=PARIS))


def test_a_record_without_equality_is_compared_by_its_fields() -> None:
    assert trip(accepting(Unequal), Unequal(3)).number == 3
    assert trip(accepting(list[Unequal]), [Unequal(3)])[0].number == 3


@pytest.mark.parametrize(
    "declared, value, expected",
    [
        (str, mark_safe("<b>"), "<b>"),
        (str, Status.DRAFT, "draft"),
        (uuid.UUID, uuid6.uuid7(), None),
        (float, 3, 3.0),
        (Decimal, 3, Decimal(3)),
        (Annotated[int, msgspec.Meta(ge=0)], 3, 3),
        (object, [1], [1]),
    ],
)
def test_subclasses_of_plain_types_come_back_as_the_plain_type(
    declared: Any, value: Any, expected: Any
) -> None:
    back = trip(accepting(declared), value)
    assert back == (value if expected is None else expected)
    assert type(back) in (str, uuid.UUID, float, Decimal, int, list)


def test_a_frozen_clock_s_datetime_is_a_datetime() -> None:
    class FakeDatetime(dt.datetime):
        pass

    class FakeDate(dt.date):
        pass

    value = FakeDatetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1)
    assert trip(accepting(dt.datetime), value) == dt.datetime(2026, 10, 25, 1, 30, tzinfo=dt.UTC)
    assert trip(accepting(dt.date), FakeDate(2026, 1, 2)) == dt.date(2026, 1, 2)


# --- a wrong call --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ((), {"ordr_id": 1}, "no argument 'ordr_id' (did you mean 'order_id'?)"),
        ((), {}, "argument 'order_id' is missing"),
        ((1,), {"order_id": 1}, "argument 'order_id' is given twice"),
        ((1, "a", "b"), {}, "3 positional arguments, at most 2"),
    ],
)
def test_a_wrong_call_names_the_job_the_argument_and_the_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    def charge(order_id: int, note: str = "x"): ...

    with pytest.raises(PayloadError) as refused:
        Arguments.of(charge).bind(args, kwargs)
    assert message in str(refused.value)
    assert "charge(order_id: " in str(refused.value)
    assert __name__ in str(refused.value)


@pytest.mark.parametrize(
    "declared, value",
    [(int, "1"), (int, 1.0), (int, True), (str, 1), (bool, 1), (dt.date, dt.datetime.now()),
     (Literal["a"], "b"), (Colour, "green"), (Annotated[int, msgspec.Meta(ge=0)], -1)],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_refused_naming_its_argument(
    declared: Any, value: Any
) -> None:
    assert "argument 'value'" in refusal(accepting(declared), value)


def test_the_path_leads_into_a_typed_value() -> None:
    assert "argument 'value[1]'" in refusal(accepting(list[int]), [1, "2"])


@pytest.mark.parametrize(
    "declared, value, becomes",
    [
        (Any, (1, 2), "tuple"),
        (Any, [{"a": (1,)}], "['a']"),
        (Any, {1, 2}, "set"),
        (Any, {1: "a"}, "int key 1"),
        (Any, {1: "a", "1": "b"}, "int key 1"),
        (Any, {1.5: "a"}, "float key 1.5"),
        (Any, {True: 1}, "bool"),
        (Any, Decimal("1.10"), "Decimal"),
        (Any, uuid.uuid4(), "UUID"),
        (Any, dt.datetime(2026, 1, 1), "datetime"),
        (Any, Colour.RED, "Colour"),
        (Any, Line("a", Decimal(1)), "Line"),
        (Any, b"x", "bytes"),
        (Decimal, 0.5, "float"),
        (list[Decimal], [Decimal(1), 0.5], "[1]"),
        (float, 2**53 + 1, "int"),
        (uuid.UUID, str(uuid.uuid4()), "str"),
        (dt.date, "2026-01-01", "str"),
    ],
)
def test_what_would_come_back_changed_is_refused_naming_it(
    declared: Any, value: Any, becomes: str
) -> None:
    message = refusal(accepting(declared), value)
    assert "arguments['value']" in message
    assert becomes in message


# --- what no database stores ---------------------------------------------------------------------


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "declared, wrap, path",
    [
        (float, lambda n: n, ""),
        (float | None, lambda n: n, ""),
        (Any, lambda n: n, ""),
        (Any, lambda n: [{"deep": [1, n]}], "[0]['deep'][1]"),
        (dict[str, float | None], lambda n: {"a": n}, "['a']"),
        (list[float | None], lambda n: [None, n], "[1]"),
    ],
)
def test_a_number_that_json_cannot_hold_is_refused_with_its_path(
    declared: Any, wrap: Callable[[float], Any], path: str, number: float
) -> None:
    assert f"arguments['value']{path} is {number}" in refusal(accepting(declared), wrap(number))


@pytest.mark.parametrize("number", ["NaN", "sNaN", "Infinity", "-Infinity", "NaN123"])
def test_a_decimal_that_is_no_number_is_refused(number: str) -> None:
    assert "no finite number" in refusal(accepting(Decimal), Decimal(number))
    assert "no finite number" in refusal(accepting(list[Decimal]), [Decimal(number)])


@pytest.mark.parametrize("bad", ["a\0b", "\0", "\ud800", "x\udfff", "\\\0", "\\u0000\0"])
@pytest.mark.parametrize(
    "declared, wrap, path",
    [
        (str, lambda t: t, ""),
        (Any, lambda t: {"a": [t]}, "['a'][0]"),
        (Any, lambda t: {t: 1}, " key"),
        (Any, lambda t: [{"a": {t: 1}}], "[0]['a'] key"),
        (dict[str, int], lambda t: {t: 1}, " key"),
        (Line, lambda t: Line(t, Decimal(1)), ".sku"),
    ],
)
def test_text_that_the_database_cannot_store_is_refused_with_its_path(
    declared: Any, wrap: Callable[[str], Any], path: str, bad: str
) -> None:
    message = refusal(accepting(declared), wrap(bad))
    assert f"arguments['value']{path}" in message
    assert "NUL" in message or "surrogate" in message


def test_an_enum_s_value_may_not_smuggle_a_nul_in() -> None:
    class Bad(enum.Enum):
        NUL = "a\0"

    assert "NUL" in refusal(accepting(Bad), Bad.NUL)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "u0000", "NaN", "Infinity", "null", "]]"])
def test_text_that_only_looks_dangerous_is_accepted(text: str) -> None:
    assert trip(accepting(Any), {text: [text * 80]}) == {text: [text * 80]}


def test_nesting_is_allowed_to_the_limit_and_refused_beyond_it() -> None:
    deepest = nested(MAX_DEPTH - 1)
    assert trip(accepting(Any), deepest) == deepest
    for levels in (MAX_DEPTH, 1_000, 100_000):
        assert "nested deeper than 64" in refusal(accepting(Any), nested(levels))
    wide = [{"a": [i]} for i in range(500)] + [nested(MAX_DEPTH - 2)]
    assert trip(accepting(Any), wide) == wide


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "nested deeper" in refusal(accepting(Any), loop)


def test_a_payload_over_its_limit_is_refused_with_both_sizes() -> None:
    arguments = accepting(str)
    with pytest.raises(PayloadError, match=r"takes 112 bytes .* the limit is 111"):
        arguments.encode({"value": "x" * 100}, 111)
    assert len(arguments.encode({"value": "x" * 100}, 112)[0]) == 112


def test_the_limit_counts_bytes_not_characters() -> None:
    with pytest.raises(PayloadError, match="the limit is 100"):
        accepting(str).encode({"value": "\N{SNOWMAN}" * 40}, 100)


# --- objects that are not data -------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, hint",
    [
        (lambda: Group(pk=1), "pass the primary key"),
        (lambda: Group.objects.all(), "pass a list of primary keys"),
        (lambda: gettext_lazy("hello"), "str(...)"),
        (lambda: object(), "builtins.object"),
        (lambda: (x for x in ()), "generator"),
        (lambda: Group, "cannot be stored"),
        (lambda: 1j, "complex"),
    ],
)
def test_an_object_that_is_not_data_is_refused_with_a_hint(
    make: Callable[[], Any], hint: str
) -> None:
    for wrapped, path in ((make(), ""), ([make()], "[0]"), ({"k": make()}, "['k']")):
        message = refusal(accepting(Any), wrapped)
        assert f"arguments['value']{path} is of type" in message
        assert hint in message


# --- declarations --------------------------------------------------------------------------------


def test_arguments_without_a_name_cannot_be_declared() -> None:
    def stars(*ids: int): ...
    def keywords(**options: int): ...
    def positional(order_id: int, /): ...

    for body, fix in ((stars, "list"), (keywords, "dict"), (positional, "remove the /")):
        with pytest.raises(DeclarationError, match=fix):
            Arguments.of(body)


class Opaque: ...


@pytest.mark.parametrize(
    "declared",
    [Opaque, list[Opaque], Opaque | None, dict[str, tuple[Opaque, int]], complex, Callable,
     dt.datetime | str, msgspec.Raw, Line | Unequal],
)  # fmt: skip
def test_a_type_that_cannot_be_stored_is_refused_when_the_module_loads(declared: Any) -> None:
    with pytest.raises(DeclarationError, match="argument 'value' has the type"):
        accepting(declared)


def test_a_model_as_a_type_is_refused_with_the_fix() -> None:
    with pytest.raises(DeclarationError, match="take its primary key"):
        accepting(Group)


def test_a_recursive_type_can_be_declared() -> None:
    tree = Tree([Tree([])])
    assert trip(accepting(Tree), tree) == tree


@dataclasses.dataclass
class Tree:
    children: list[Tree]


def test_an_annotation_that_cannot_be_resolved_is_refused() -> None:
    def body(value: Missing): ...  # noqa: F821

    with pytest.raises(DeclarationError, match="TYPE_CHECKING"):
        Arguments.of(body)


def test_a_default_that_its_type_does_not_allow_is_refused() -> None:
    def body(value: int = None): ...  # noqa: RUF013

    with pytest.raises(DeclarationError, match="default of argument 'value'"):
        Arguments.of(body)

    def unstorable(value=object()): ...  # noqa: B008

    with pytest.raises(DeclarationError, match="default of argument 'value'"):
        Arguments.of(unstorable)


# --- the signature has changed since -------------------------------------------------------------


def test_a_new_argument_with_a_default_is_filled_in() -> None:
    def body(a: int, b: int, c: int = 3): ...

    assert Arguments.of(body).decode('{"a":1,"b":2}') == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"a":1}', "lacks the argument 'b'"),
        ('{"a":1,"b":2,"gone":3}', "has an argument 'gone'"),
        ('{"a":1,"b":"2"}', "argument 'b'"),
        ('{"a":1', "cannot be read"),
        ("[]", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_stored_payload_that_no_longer_fits_says_what_does_not(text: str, message: str) -> None:
    def body(a: int, b: int): ...

    with pytest.raises(PayloadError, match=message) as refused:
        Arguments.of(body).decode(text)
    assert "body(a: " in str(refused.value)


# --- results and progress ------------------------------------------------------------------------


def test_nothing_is_stored_for_a_body_that_returns_nothing() -> None:
    assert encode_value(None, LIMIT, "result") is None
    assert decode_value(None, int) is None


def test_a_result_comes_back_by_its_annotation() -> None:
    def sync() -> Line: ...
    async def coroutine() -> tuple[int, Decimal]: ...
    def unannotated(): ...
    def nothing() -> None: ...

    line = Line("a", Decimal("1.10"))
    for body, value in ((sync, line), (coroutine, (1, Decimal("1.10"))), (unannotated, [1])):
        result = Result.of(body)
        assert result.decode(result.encode(value, LIMIT)) == value
    assert Result.of(nothing).encode(None, LIMIT) is None


def test_a_return_type_that_cannot_be_stored_is_refused_when_the_module_loads() -> None:
    def body() -> Group: ...

    with pytest.raises(DeclarationError, match="the return value has the type"):
        Result.of(body)


@pytest.mark.parametrize(
    "value, where",
    [
        (math.nan, "result is nan"),
        ({"a": [1, -math.inf, None]}, "result['a'][1] is -inf"),
        (Line("x\0", Decimal(1)), "result.sku contains a NUL"),
        ({"a\ud800": 1}, "result key"),
        (object(), "result is of type builtins.object"),
        ([Group(pk=1)], "primary key"),
        (nested(MAX_DEPTH + 1), "nested deeper"),
        ("x" * 2_000, "the limit is 1,000"),
        ({None: 1}, "result key"),
        ([{True: 1}], "result[0] key [True] is a bool"),
        (Decimal("NaN"), "no finite number"),
    ],
)
def test_a_result_that_cannot_be_stored_is_refused_with_its_path(value: Any, where: str) -> None:
    with pytest.raises(ResultError) as refused:
        encode_value(value, 1_000, "result")
    assert where in str(refused.value)


def test_none_inside_a_result_is_fine() -> None:
    assert encode_value({"a": None, "b": [None]}, LIMIT, "result") == '{"a":null,"b":[null]}'


def test_a_stored_result_that_no_longer_fits_is_a_result_error() -> None:
    with pytest.raises(ResultError, match="cannot be read"):
        decode_value('"text"', int)
