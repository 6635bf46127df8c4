"""Jobs as they are declared and called: whatever is wrong is refused before any statement."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import enum
import importlib
import inspect
import itertools
import sys
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.test import override_settings

from django_jobs import conf, definitions
from django_jobs.definitions import (
    PER_CALL,
    Call,
    Definition,
    Enqueued,
    Request,
    declared,
    discovery,
    registered,
)
from django_jobs.errors import (
    DeclarationError,
    EnqueueError,
    KeyRefused,
    NotDiscoverable,
    PayloadError,
)
from django_jobs.keys import Template, text_of
from django_jobs.retries import Retry
from tests.app.jobs import noop

FOLDER = Path(__file__).parent


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is gone after it."""
    monkeypatch.setattr(registered, "_definitions", dict(registered._definitions))
    monkeypatch.setattr(discovery, "_allowed", {__name__})


def job(**options: Any) -> Callable[[Any], Definition[..., Any]]:
    """``@job`` for functions inside tests, which have no path."""

    def decorate(fn: Any) -> Definition[..., Any]:
        options.setdefault("name", f"tests.{fn.__name__}")
        options.setdefault("idempotency_key", PER_CALL)
        return definitions.job(**options)(fn)

    return decorate


def charge(order_id: int, note: str = "none") -> int:
    """Charges an order."""
    return order_id * 2


def request(made: Definition[..., Any], *args: Any, **kwargs: Any) -> Request:
    return definitions.request_of(made, args, kwargs)


# --- a decorated function ------------------------------------------------------------------------


def test_a_decorated_function_stays_an_ordinary_function() -> None:
    made = job()(charge)
    assert made(2) == made(order_id=2, note="x") == 4
    assert made.__doc__ == "Charges an order."
    assert made.__name__ == "charge"
    assert made.__wrapped__ is charge
    assert inspect.signature(made) == inspect.signature(charge)
    assert repr(made) == "<job tests.charge>"


def test_a_definition_says_what_was_declared() -> None:
    policy = Retry(7)
    made = job(
        queue="mail", priority=-5, retry=policy, timeout=dt.timedelta(minutes=1), max_payload=99
    )(charge)
    assert (made.queue, made.priority, made.retry, made.timeout, made.max_payload) == (
        "mail", -5, policy, 60.0, 99,
    )  # fmt: skip
    assert (made.fn, made.is_async, made.module) == (charge, False, __name__)
    assert made.arguments.names == ("order_id", "note")


def test_an_async_body_is_recognised_and_can_be_awaited() -> None:
    async def body(number: int) -> int:
        return number + 1

    made = job()(body)
    assert made.is_async
    assert asyncio.run(made(1)) == 2


def test_attributes_of_the_function_do_not_change_the_job() -> None:
    def body() -> None: ...

    body.queue = "other"  # type: ignore[attr-defined]
    assert job()(body).queue == "default"


def test_the_name_is_the_path_of_the_function_or_what_was_given() -> None:
    assert noop.name == "tests.app.jobs.noop"
    assert definitions.definition("tests.app.jobs.noop") is noop
    assert definitions.definition("unknown") is None
    assert job(name="shop:charge")(charge).name == "shop:charge"


# --- declarations that cannot work ---------------------------------------------------------------


class Method:
    def run(self, number: int) -> None: ...

    @classmethod
    def make(cls) -> None: ...


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    "fn, message",
    [
        (Method, "a plain function"),
        (Method.run, "a method"),
        (Method.__dict__["make"].__func__, "a method"),
        (print, "a plain function"),
        (generator, "Remove yield"),
        (async_generator, "Remove yield"),
    ],
)
def test_only_a_plain_function_can_be_a_job(fn: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        definitions.job(idempotency_key=PER_CALL, name="x")(fn)


def test_the_decorator_without_parentheses_is_refused_with_the_fix() -> None:
    with pytest.raises(DeclarationError, match=r"needs parentheses.*PER_CALL"):
        definitions.job(charge)  # type: ignore[arg-type]


def test_a_lambda_or_an_inner_function_needs_a_name() -> None:
    def inner() -> None: ...

    for fn in (inner, lambda: None):
        with pytest.raises(DeclarationError, match="name="):
            definitions.job(idempotency_key=PER_CALL)(fn)
        assert job(name="given")(inner).name == "given"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"queue": ""}, "queue is empty"),
        ({"queue": "q" * 101}, "at most 100"),
        ({"queue": "a\0"}, "NUL"),
        ({"queue": "\ud800"}, "surrogate"),
        ({"queue": None}, "must be text"),
        ({"name": ""}, "name is empty"),
        ({"name": "n" * 201}, "at most 200"),
        ({"name": "a\0"}, "NUL"),
        ({"priority": 32_768}, "priority=32768"),
        ({"priority": -32_769}, "priority=-32769"),
        ({"priority": 1.0}, "priority=1.0"),
        ({"priority": True}, "priority=True"),
        ({"retry": 3}, r"Retry\(max_attempts="),
        ({"retry": None}, r"Retry\(max_attempts="),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": -1}, "timeout=-1"),
        ({"timeout": float("inf")}, "timeout=inf"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"timeout": "1"}, "timeout='1'"),
        ({"timeout": dt.timedelta(0)}, "timeout="),
        ({"max_payload": 0}, "max_payload=0"),
        ({"max_payload": 1.5}, "max_payload=1.5"),
        ({"max_payload": True}, "max_payload=True"),
    ],
)
def test_an_option_that_cannot_work_is_refused_when_the_module_loads(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        job(**options)(charge)
    assert "tests.charge" not in definitions.registry()


@pytest.mark.parametrize("value", [-32_768, 0, 32_767])
def test_every_priority_of_the_column_is_allowed(value: int) -> None:
    assert job(priority=value)(charge).priority == value


# --- keys and tenants: declarations --------------------------------------------------------------


def test_a_job_without_a_key_is_refused_with_both_ways_out() -> None:
    with pytest.raises(DeclarationError, match=r"'charge:\{order_id\}'.*PER_CALL"):
        definitions.job(name="x")(charge)


@pytest.mark.parametrize("field", ["idempotency_key", "tenant"])
@pytest.mark.parametrize(
    "template, message",
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("charge:{ordr_id}", "no argument 'ordr_id'. Its arguments: order_id, note"),
        ("{}", "more than the name"),
        ("{0}", "more than the name"),
        ("{order_id.real}", "more than the name"),
        ("{note[0]}", "more than the name"),
        ("{order_id:05d}", "more than the name"),
        ("{order_id!r}", "more than the name"),
        ("{order_id:{note}}", "more than the name"),
        ("{ order_id }", "more than the name"),
        ("{order_id", "no template"),
        ("order_id}", "no template"),
        ("{order_id}{note}", "two fields touch"),
        (3, "neither a template nor a callable"),
        (int, "neither a template nor a callable"),
        (lambda order: "x", "cannot be called"),
        (lambda order_id, /: "x", "cannot be called"),
        (asyncio.sleep, "async function"),
    ],
)
def test_a_key_or_tenant_that_does_not_fit_the_signature_is_refused(
    field: str, template: Any, message: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        job(**{field: template})(charge)
    assert message in str(refused.value)
    assert f"{__name__}.charge: {field}" in str(refused.value)
    assert "tests.charge" not in definitions.registry()


def test_a_job_without_arguments_may_have_a_constant_key() -> None:
    made = job(idempotency_key="nightly")(lambda: None)
    assert request(made).idempotency_key == "nightly"


def test_a_required_tenant_is_demanded_when_the_module_loads() -> None:
    with override_settings(DJANGO_JOBS={"REQUIRE_TENANT": True}):
        with pytest.raises(DeclarationError, match=r"REQUIRE_TENANT.*tenant="):
            job()(charge)
        assert request(job(tenant="system")(charge), 1).tenant == "system"


def test_a_required_tenant_is_demanded_at_the_call_too() -> None:
    made = job()(charge)
    with override_settings(DJANGO_JOBS={"REQUIRE_TENANT": True}), pytest.raises(DeclarationError):
        request(made, 1)


# --- keys: what they are -------------------------------------------------------------------------


def test_a_key_is_derived_from_the_arguments_of_the_call() -> None:
    made = job(idempotency_key="charge:{order_id}")(charge)
    assert request(made, 7).idempotency_key == "charge:7"
    assert request(made, order_id=7, note="x").idempotency_key == "charge:7"


def test_per_call_has_no_key() -> None:
    assert request(job()(charge), 7).idempotency_key is None


def test_a_callable_gets_the_arguments_that_it_names() -> None:
    for spec in (
        lambda order_id: f"o{order_id}",
        lambda order_id, **rest: f"o{order_id}",
        lambda note, order_id=0: f"o{order_id}",
        lambda **all: f"o{all['order_id']}",
    ):
        assert request(job(idempotency_key=spec)(charge), 7).idempotency_key == "o7"


def test_a_key_comes_from_the_arguments_as_the_worker_will_read_them() -> None:
    def body(ratio: float, colour: Colour) -> None: ...

    body.__annotations__ = {"ratio": float, "colour": Colour}
    made = job(idempotency_key="{ratio}:{colour}")(body)
    assert request(made, 1, Colour.RED).idempotency_key == "1.0:red"


class Colour(enum.Enum):
    RED = "red"


class Named(enum.StrEnum):
    A = "a"


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    "value, text",
    [
        (1, "1"),
        (1.0, "1.0"),
        (True, "True"),
        ("text", "text"),
        (Decimal("1.10"), "1.10"),
        (Colour.RED, "red"),
        (Named.A, "a"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2), "2026-01-02T00:00:00"),
        (dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
         "2026-01-01T22:00:00+00:00"),
        ({"b": 1, "a": [2]}, '{"a":[2],"b":1}'),
        ({2: 1, 1: 2}, '{"1":2,"2":1}'),
        ({"c", "a", "b"}, '["a","b","c"]'),
        (Pair(1, 2), "[1,2]"),
    ],
)  # fmt: skip
def test_a_value_is_written_in_a_key_the_same_in_every_process(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_a_set_that_cannot_be_sorted_cannot_be_in_a_key() -> None:
    with pytest.raises(KeyRefused, match="no one text"):
        text_of({1, "a", None})


def test_key_order_of_a_dict_does_not_matter_but_its_content_does() -> None:
    made = job(idempotency_key="f:{data}")(lambda data: None)
    keys = [request(made, value).idempotency_key for value in ({}, {"a": 1}, {"a": 1, "b": 2})]
    assert len(set(keys)) == 3
    assert request(made, {"b": 2, "a": 1}).idempotency_key == keys[2]
    assert request(made, {"a": 1.0, "b": 2}).idempotency_key != keys[2]


TRICKY = ["".join(chars) for size in range(4) for chars in itertools.product(":%3A", repeat=size)]


@pytest.mark.parametrize("text", ["{a}:{b}", "x{a}:3{b}%", "{a}%{b}", "{a}3A{b}", "{b}:{a}:"])
def test_different_arguments_never_share_a_key(text: str) -> None:
    template = Template.parse(text, ("a", "b"), "key")
    pairs = list(itertools.product(TRICKY, TRICKY))
    assert len({template.render({"a": a, "b": b}) for a, b in pairs}) == len(pairs)


def test_a_separator_is_escaped_within_values_and_nothing_else_is() -> None:
    template = Template.parse("{a}:{b}", ("a", "b"), "key")
    assert template.render({"a": "x:y", "b": "100%/z"}) == "x%3Ay:100%25/z"
    assert template.render({"a": "eu", "b": 7}) == "eu:7"


def test_a_single_field_is_written_as_it_is() -> None:
    made = job(idempotency_key="mail:{note}")(charge)
    assert request(made, 1, "a:b%c").idempotency_key == "mail:a:b%c"


def test_doubled_braces_are_text() -> None:
    made = job(idempotency_key="{{x}}:{order_id}")(charge)
    assert request(made, 1).idempotency_key == "{x}:1"


@pytest.mark.parametrize(
    "spec, message",
    [
        ("{note}", "is empty"),
        (lambda note: "", "is empty"),
        (lambda note: None, "must be text, not NoneType"),
        (lambda order_id: order_id, "must be text, not int"),
        (lambda note: "a\0", "NUL"),
        (lambda note: "\ud800", "surrogate"),
        (lambda note: "k" * 513, "513 bytes; at most 512"),
        (lambda note: "\N{SNOWMAN}" * 171, "513 bytes"),
    ],
)
def test_a_key_that_cannot_be_stored_is_refused_at_the_call(spec: Any, message: str) -> None:
    made = job(idempotency_key=spec)(charge)
    with pytest.raises(KeyRefused, match=message):
        request(made, 1, "")
    assert request(job(idempotency_key=lambda note: "k" * 512)(charge), 1)


def test_none_in_a_template_is_refused_naming_the_argument() -> None:
    made = job(idempotency_key="x:{who}")(lambda who=None: None)
    with pytest.raises(KeyRefused, match="argument 'who', which is None"):
        request(made)


def test_an_error_of_a_key_function_reaches_the_caller_as_it_is() -> None:
    made = job(idempotency_key=lambda order_id: 1 / order_id)(charge)
    with pytest.raises(ZeroDivisionError):
        request(made, 0)


# --- tenants -------------------------------------------------------------------------------------


def test_a_tenant_is_derived_given_or_empty() -> None:
    assert request(job()(charge), 1).tenant == ""
    assert request(job()(charge).using(tenant="acme"), 1).tenant == "acme"
    assert request(job(tenant="{note}")(charge), 1, "acme").tenant == "acme"


def test_an_empty_tenant_is_refused_however_it_came_about() -> None:
    with pytest.raises(KeyRefused, match="tenant is empty"):
        job()(charge).using(tenant="")
    with pytest.raises(KeyRefused, match="tenant is empty"):
        request(job(tenant=lambda note: note)(charge), 1, "")


def test_a_tenant_that_is_no_text_is_refused() -> None:
    with pytest.raises(KeyRefused, match=r"must be text, not int; use str"):
        request(job(tenant=lambda order_id: order_id)(charge), 1)
    with pytest.raises(KeyRefused, match="at most 200"):
        request(job(tenant="{note}")(charge), 1, "t" * 201)


def test_a_given_tenant_may_only_confirm_the_derived_one() -> None:
    made = job(tenant="{note}")(charge)
    assert request(made.using(tenant="acme"), 1, "acme").tenant == "acme"
    with pytest.raises(KeyRefused, match=r"belong to tenant 'acme'.*tenant='evil'"):
        request(made.using(tenant="evil"), 1, "acme")


# --- call options --------------------------------------------------------------------------------

NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)


def test_using_returns_a_copy_and_leaves_the_job_alone() -> None:
    made = job(queue="mail")(charge)
    other = made.using(queue="slow", priority=3, delay=dt.timedelta(minutes=1), database="other",
                       enqueued_by="user:3", on_conflict="error")  # fmt: skip
    wanted = request(other, 1)
    assert (wanted.queue, wanted.priority, wanted.delay, wanted.database, wanted.enqueued_by,
            wanted.on_conflict) == ("slow", 3, 60.0, "other", "user:3", "error")  # fmt: skip
    plain = request(made, 1)
    assert (plain.queue, plain.priority, plain.delay, plain.database, plain.enqueued_by,
            plain.on_conflict) == ("mail", 0, None, None, "", "dedupe")  # fmt: skip
    assert other(4) == made(4)
    assert definitions.registry()["tests.charge"] is made


def test_options_of_several_using_add_up() -> None:
    wanted = request(job()(charge).using(queue="a", priority=1).using(priority=2), 1)
    assert (wanted.queue, wanted.priority) == ("a", 2)


def test_run_at_is_kept_as_given() -> None:
    assert request(job()(charge).using(run_at=NOON), 1).run_at == NOON


@pytest.mark.parametrize(
    "options, message",
    [
        ({"delay": -1}, "delay=-1"),
        ({"delay": float("nan")}, "delay=nan"),
        ({"delay": float("inf")}, "delay=inf"),
        ({"delay": 1e300}, "delay=1e"),
        ({"delay": 10**400}, "delay=1000"),
        ({"delay": dt.timedelta.max}, "delay="),
        ({"delay": dt.timedelta(seconds=-1)}, "delay="),
        ({"delay": "5"}, "delay='5'"),
        ({"delay": True}, "delay=True"),
        ({"run_at": dt.datetime(2026, 5, 1)}, "make_aware"),
        ({"run_at": "2026-05-01"}, "no datetime"),
        ({"run_at": NOON, "delay": 1}, "exclude each other"),
        ({"priority": 40_000}, "priority=40000"),
        ({"priority": True}, "priority=True"),
        ({"on_conflict": "replace"}, '"dedupe" or "error"'),
        ({"queue": ""}, "queue is empty"),
        ({"queue": "q" * 101}, "at most 100"),
        ({"queue": "a\0"}, "NUL"),
        ({"tenant": "a\0"}, "NUL"),
        ({"tenant": 3}, "must be text"),
        ({"database": ""}, "database is empty"),
        ({"enqueued_by": "\ud800"}, "surrogate"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_the_call(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(EnqueueError, match=message):
        job()(charge).using(**options)


@pytest.mark.parametrize("use_tz", [True, False])
def test_a_naive_run_at_is_refused_whatever_the_settings_say(use_tz: bool) -> None:
    with (
        override_settings(USE_TZ=use_tz, TIME_ZONE="Asia/Kolkata"),
        pytest.raises(EnqueueError, match="no time zone"),
    ):
        job()(charge).using(run_at=dt.datetime(2026, 5, 1))


# --- requests ------------------------------------------------------------------------------------


def test_a_request_holds_all_that_a_row_needs() -> None:
    made = job(
        idempotency_key="charge:{order_id}", tenant="{note}", queue="money", priority=2,
        retry=Retry(9), timeout=30,
    )(charge)  # fmt: skip
    assert request(made, 7, "acme") == Request(
        name="tests.charge",
        queue="money",
        priority=2,
        tenant="acme",
        idempotency_key="charge:7",
        lane=None,
        payload='{"order_id":7,"note":"acme"}',
        run_at=None,
        delay=None,
        max_attempts=9,
        timeout=30.0,
        on_conflict="dedupe",
        database=None,
        enqueued_by="",
        bypass=False,
    )


def test_a_call_is_the_same_request() -> None:
    made = job(idempotency_key="charge:{order_id}")(charge)
    call = made.using(queue="x").call(7, note="y")
    assert isinstance(call, Call)
    assert call.request() == request(made.using(queue="x"), 7, note="y")


def test_a_wrong_call_is_refused() -> None:
    with pytest.raises(PayloadError, match="did you mean 'order_id'"):
        request(job()(charge), ordr_id=1)


def test_the_job_s_own_payload_limit_outranks_the_setting() -> None:
    with override_settings(DJANGO_JOBS={"MAX_PAYLOAD": 50}):
        assert conf.current().max_payload == 50
        with pytest.raises(PayloadError, match="the limit is 50"):
            request(job()(charge), 1, "x" * 50)
        assert request(job(max_payload=500, name="large")(charge), 1, "x" * 50)
    with pytest.raises(PayloadError, match="the limit is 30"):
        request(job(max_payload=30, name="small")(charge), 1, "x" * 50)


def test_enqueue_and_aenqueue_go_where_operations_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "_enqueue", None)
    made = job()(charge)
    with pytest.raises(EnqueueError, match="INSTALLED_APPS"):
        made.enqueue(1)
    answer = Enqueued(uuid.uuid4(), "staged")
    seen: list[Any] = []

    def enqueue(job: Any, /, *args: Any, **kwargs: Any) -> Enqueued:
        seen.append((job, args, kwargs))
        return answer

    definitions.bind(enqueue)
    assert made.enqueue(1, note="x") is answer
    assert asyncio.run(made.aenqueue(2)) is answer
    assert seen == [(made, (1,), {"note": "x"}), (made, (2,), {})]


def test_whether_a_call_was_deduped_is_unknown_while_staged() -> None:
    some = uuid.uuid4()
    assert Enqueued(some, "staged").deduped is None
    assert Enqueued(some, "published", some).deduped is False
    assert Enqueued(some, "deduped", some).deduped is True


# --- the registry --------------------------------------------------------------------------------


def test_the_registry_is_sorted_and_cannot_be_written() -> None:
    for name in ("b", "a", "Z", "ä"):
        job(name=name)(lambda: None)
    names = list(definitions.registry())
    assert names == sorted(names)
    with pytest.raises(TypeError):
        definitions.registry()["x"] = None  # type: ignore[index]


def test_two_jobs_of_one_name_are_refused_and_the_first_stays() -> None:
    first = job(name="same")(charge)
    with pytest.raises(DeclarationError, match=r"(?s)test_definitions.*test_definitions.*name="):
        job(name="same")(generator_free)
    assert definitions.definition("same") is first


def generator_free() -> None: ...


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Writes a module of jobs and imports it, again if it was there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    head = "from django_jobs import job, PER_CALL\n"

    def write(text: str) -> Any:
        (tmp_path / "written_jobs.py").write_text(head + text)
        importlib.invalidate_caches()
        seated = sys.modules.get("written_jobs")
        return importlib.reload(seated) if seated else importlib.import_module("written_jobs")

    yield write
    sys.modules.pop("written_jobs", None)


ONE = "@job(idempotency_key=PER_CALL{0})\ndef one(): return {1!r}\n"


def test_a_reloaded_module_replaces_its_own_jobs(module: Callable[[str], Any]) -> None:
    module(ONE.format("", "old"))
    for text in (ONE.format("", "new"), "\n\n" + ONE.format(", queue='moved'", "newer")):
        loaded = module(text)
        assert definitions.definition("written_jobs.one") is loaded.one
    assert loaded.one() == "newer"
    sys.modules.pop("written_jobs")
    loaded = module(text)
    assert definitions.definition("written_jobs.one") is loaded.one


def test_a_function_written_twice_in_one_module_is_refused(module: Callable[[str], Any]) -> None:
    with pytest.raises(DeclarationError, match=r"Two jobs are called 'written_jobs\.one'"):
        module(ONE.format("", "first") + ONE.format("", "second"))
    seated = definitions.definition("written_jobs.one")
    assert seated is not None
    assert seated() == "first"


# --- discovery -----------------------------------------------------------------------------------


def test_a_job_that_workers_do_not_import_is_refused_with_the_fix() -> None:
    made = job()(charge)
    discovery._allowed.clear()
    with pytest.raises(NotDiscoverable, match=r"Move it to jobs.py or tasks.py"):
        request(made, 1)
    definitions.allow(__name__)
    assert request(made, 1)


def test_a_job_of_an_installed_app_is_discovered() -> None:
    assert request(noop).name == "tests.app.jobs.noop"


def test_a_job_that_a_job_module_imports_is_discovered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = job()(charge)
    discovery._allowed.clear()
    monkeypatch.setattr(discovery, "_known", frozenset())
    definitions.autodiscover()
    assert request(made, 1)
    later = job(name="declared.later")(charge)
    with pytest.raises(NotDiscoverable):
        request(later, 1)


def test_a_reloaded_job_module_may_declare_new_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = copy.copy(job(name="tests.app.jobs.new")(charge))
    made.module = "tests.app.jobs"
    discovery._allowed.clear()
    assert request(made, 1)
    monkeypatch.setattr(discovery, "_known", None)
    assert request(made, 1)
    made.module = "tests.app.jobs.inner"
    with pytest.raises(NotDiscoverable):
        request(made, 1)


def test_a_job_of_a_script_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = copy.copy(job()(charge))
    made.module = "__main__"
    monkeypatch.setattr(discovery, "_known", frozenset(definitions.registry()))
    with pytest.raises(NotDiscoverable, match="__main__"):
        request(made, 1)


def test_the_names_of_job_modules_are_a_setting() -> None:
    made = copy.copy(job()(charge))
    made.module = "tests.app.background"
    with pytest.raises(NotDiscoverable):
        request(made, 1)
    with override_settings(DJANGO_JOBS={"AUTODISCOVER": ["background"]}):
        assert request(made, 1)


# --- types ---------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_mypy_finds_wrong_and_misspelt_arguments(tmp_path: Path) -> None:
    from mypy import api

    source = FOLDER / "typed_calls.py"
    root = FOLDER.parent.parent
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nstrict = True\nmypy_path = {root}\nfollow_imports = silent\n")
    out, err, _ = api.run(
        [str(source), f"--config-file={config}", f"--cache-dir={root / '.mypy_cache'}",
         "--no-pretty", "--explicit-package-bases", "--hide-error-codes"]
    )  # fmt: skip
    found: dict[int, str] = {}
    for line in out.splitlines():
        if "typed_calls.py:" in line:
            _, number, text = line.split(":", 2)
            found[int(number)] = found.get(int(number), "") + text
    assert found, out + err
    for number, line in enumerate(source.read_text().splitlines(), 1):
        _, mark, expected = line.partition("  # ")
        if mark and expected[:3] == "R: ":
            revealed = found.pop(number)
            for word in expected[3:].replace("UUID", "uuid.UUID").split(" | "):
                assert word.split("[")[0] in revealed, (line, revealed)
        elif mark and expected[:3] == "E: ":
            assert expected[3:] in found.pop(number), line
    assert not found, out
