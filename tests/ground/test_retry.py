"""Whether and when a failed attempt is followed by another, and what is kept of the failure."""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.errors import (
    DeclarationError,
    JobTimeout,
    KeyRefused,
    PayloadError,
    ResultError,
    RetryAfter,
    SettingsError,
    Terminal,
)
from django_jobs.failures import (
    MASK,
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    failure_of,
    redact,
)
from django_jobs.retries import MOST_ATTEMPTS, Decision, Retry, decide, told

AGAIN = Retry(max_attempts=5, base=1, jitter=False)


# --- delays --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy, delays",
    [
        (Retry(5, base=1), [1, 2, 4, 8]),
        (Retry(8, base=1, cap=10), [1, 2, 4, 8, 10, 10, 10]),
        (Retry(5, "linear", base=2), [2, 4, 6, 8]),
        (Retry(5, "linear", base=2, cap=5), [2, 4, 5, 5]),
        (Retry(4, "fixed", base=7), [7, 7, 7]),
        (Retry(4, "fixed", base=7, cap=3), [3, 3, 3]),
        (Retry(4, lambda attempt: attempt * 10), [10, 20, 30]),
        (Retry(3, lambda attempt: timedelta(minutes=attempt)), [60, 120]),
        (Retry(3, base=timedelta(minutes=1), cap=timedelta(seconds=90)), [60, 90]),
        (Retry(3, base=0), [0, 0]),
        (Retry(1), []),
    ],
)
def test_the_schedule_lists_the_delays_between_the_attempts(
    policy: Retry, delays: list[float]
) -> None:
    assert policy.schedule() == delays


@given(
    backoff=st.sampled_from(["exponential", "linear", "fixed", lambda n: 2.0**n, lambda n: -1]),
    base=st.floats(0, 1e308),
    cap=st.floats(1e-9, 1e308),
    jitter=st.booleans(),
    attempt=st.integers(0, 10**30) | st.sampled_from([46, 1_023, 1_024, 10**6]),
    luck=st.floats(0, 1, exclude_max=True),
)
def test_no_delay_ever_overflows_or_exceeds_the_cap(
    backoff: Any, base: float, cap: float, jitter: bool, attempt: int, luck: float
) -> None:
    logging.disable(logging.CRITICAL)
    try:
        policy = Retry(3, backoff, base=base, cap=cap, jitter=jitter)
        assert 0 <= policy.delay(attempt, lambda: luck) <= cap
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("attempt", [46, 1_023, 1_024, 10**6])
def test_a_job_that_fails_for_ever_is_retried_at_the_cap(attempt: int) -> None:
    assert Retry(MOST_ATTEMPTS, cap=3600, jitter=False).delay(attempt) == 3600


def test_jitter_spreads_the_upper_half_of_a_delay() -> None:
    policy = Retry(base=8)
    assert policy.jitter
    assert policy.delay(1, lambda: 0.0) == 4
    assert policy.delay(1, lambda: 0.5) == 6
    assert policy.delay(1, lambda: 0.999) == pytest.approx(8, rel=0.01)
    assert len({policy.delay(1) for _ in range(20)}) > 1
    assert {Retry(base=8, jitter=False).delay(1) for _ in range(20)} == {8}


def raising(attempt: int) -> float:
    raise LookupError("broken")


@pytest.mark.parametrize(
    "broken",
    [
        raising,
        lambda attempt: math.nan,
        lambda attempt: math.inf,
        lambda attempt: -1,
        lambda attempt: timedelta(seconds=-1),
        lambda attempt: timedelta(days=10**9),
        lambda attempt: None,
        lambda attempt: "7",
        lambda attempt: True,
        lambda attempt: 10**400,
        lambda: 7,
    ],
)
def test_a_broken_policy_falls_back_to_the_default_delay_and_logs(
    broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    policy = Retry(9, broken, base=500, cap=6, jitter=False)
    with caplog.at_level(logging.ERROR, "django_jobs.retries"):
        assert [policy.delay(attempt) for attempt in (1, 2, 3, 4)] == [1, 2, 4, 6]
    assert len(caplog.records) == 4


def test_a_custom_delay_beyond_the_cap_is_the_cap_without_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert Retry(3, lambda attempt: timedelta.max, cap=60, jitter=False).delay(1) == 60
    assert not caplog.records


@pytest.mark.parametrize(
    "values, message",
    [
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"max_attempts": -1}, "max_attempts=-1"),
        ({"max_attempts": 1.5}, "max_attempts=1.5"),
        ({"max_attempts": True}, "max_attempts=True"),
        ({"max_attempts": MOST_ATTEMPTS + 1}, "max_attempts="),
        ({"backoff": "quadratic"}, "backoff='quadratic'"),
        ({"backoff": 3}, "backoff=3"),
        ({"base": -1}, "base=-1"),
        ({"base": math.nan}, "base=nan"),
        ({"base": math.inf}, "base=inf"),
        ({"base": "1"}, "base='1'"),
        ({"base": timedelta(seconds=-1)}, "base="),
        ({"cap": 0}, "cap=0"),
        ({"cap": math.inf}, "cap=inf"),
        ({"cap": True}, "cap=True"),
        ({"terminal_on": ValueError}, "terminal_on="),
        ({"terminal_on": (1,)}, "terminal_on="),
        ({"terminal_on": (KeyboardInterrupt,)}, "terminal_on="),
    ],
)
def test_a_policy_that_cannot_work_is_refused_with_the_fix(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError, match="cannot work; write") as refused:
        Retry(**values)
    assert message in str(refused.value)


# --- decisions -----------------------------------------------------------------------------------


class Business(Exception):
    pass


class Hopeless(Terminal):
    pass


@pytest.mark.parametrize(
    "error",
    [
        Terminal("no"),
        Hopeless("no"),
        PayloadError("no"),
        ResultError("no"),
        DeclarationError("no"),
        SettingsError("no"),
        Business("no"),
    ],
)
def test_a_hopeless_error_ends_the_job_on_its_first_attempt(error: Exception) -> None:
    policy = Retry(5, terminal_on=(Business,))
    assert decide(policy, error, 1, 5) == Decision(again=False, delay=0, reason="terminal")


@pytest.mark.parametrize(
    "error", [ValueError(), Business(), JobTimeout(), KeyRefused(), OSError(), SystemExit()]
)
def test_any_other_error_is_retried_with_backoff(error: BaseException) -> None:
    assert decide(AGAIN, error, 2, 5) == Decision(again=True, delay=2, reason="retry")


@pytest.mark.parametrize("error", [ValueError(), RetryAfter(1), JobTimeout()])
def test_exhausted_attempts_outrank_everything_but_terminal(error: Exception) -> None:
    for attempt in (5, 6, 10**6):
        assert decide(AGAIN, error, attempt, 5).reason == "attempts-exhausted"
    assert decide(AGAIN, Terminal(), 5, 5).reason == "terminal"
    assert decide(AGAIN, ValueError(), 1, 1).reason == "attempts-exhausted"


@pytest.mark.parametrize(
    ("policy", "error", "attempt", "reason"),
    [
        (AGAIN, ValueError("no"), 5, "5 of 5 attempts failed, the last with ValueError"),
        (AGAIN, Terminal("no"), 1, "Terminal is terminal: another attempt would meet it again"),
        (
            Retry(terminal_on=(ValueError,)),
            UnicodeError(),
            1,
            "UnicodeError is terminal by the retry policy",
        ),
    ],
)
def test_a_job_that_is_given_up_says_why_in_words(
    policy: Retry, error: Exception, attempt: int, reason: str
) -> None:
    assert told(decide(policy, error, attempt, 5), error, attempt, 5) == reason


def test_the_row_s_own_limit_counts_not_the_policy_s() -> None:
    assert decide(AGAIN, ValueError(), 7, 10).again
    assert not decide(AGAIN, ValueError(), 2, 2).again


@pytest.mark.parametrize(
    "asked, delay",
    [
        (30, 30),
        (0, 0),
        (0.25, 0.25),
        (timedelta(seconds=9), 9),
        (86_400, 60),
        (-1, 1),
        (math.nan, 1),
        (math.inf, 1),
        ("30", 1),
        (None, 1),
        (True, 1),
    ],
)
def test_a_stated_delay_is_taken_up_to_the_cap_and_an_unusable_one_ignored(
    asked: Any, delay: float
) -> None:
    policy = Retry(5, base=1, cap=60, jitter=False)
    assert decide(policy, RetryAfter(asked), 1, 5) == Decision(True, delay, "retry")


def test_seconds_on_any_other_error_are_ignored() -> None:
    error = ValueError()
    error.seconds = 30  # type: ignore[attr-defined]
    assert decide(AGAIN, error, 1, 5).delay == 1


def test_every_kind_of_failure_asks_the_same_policy() -> None:
    policy = Retry(9, lambda attempt: 7, jitter=False)
    for error in (ValueError(), JobTimeout(), ConnectionError(), RetryAfter(math.nan)):
        assert decide(policy, error, 1, 9).delay == 7


# --- failures ------------------------------------------------------------------------------------


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


def test_a_failure_has_class_message_and_traceback() -> None:
    failure = failure_of(caught(Business("broken thing")))
    assert failure.error_class == f"{__name__}.Business"
    assert failure.message == "broken thing"
    assert failure.traceback.startswith("Traceback (most recent call last)")
    assert "raise error" in failure.traceback
    assert failure_of(ValueError("x")).error_class == "ValueError"


def test_a_long_message_and_traceback_keep_their_head_and_tail() -> None:
    failure = failure_of(caught(ValueError("BEGIN" + "x " * 200_000 + "END")))
    assert len(failure.message) <= MESSAGE_LIMIT
    assert failure.message.startswith("BEGINx x")
    assert failure.message.endswith("END")
    assert "characters cut" in failure.message
    assert len(failure.traceback) <= TRACEBACK_LIMIT
    assert failure.traceback.startswith("Traceback")
    assert failure.traceback.rstrip().endswith("END")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Texts(Exception):
    def __str__(self) -> Any:
        return 3  # noqa: PLE0307


def test_an_error_that_cannot_be_printed_is_stored_all_the_same() -> None:
    failure = failure_of(caught(Unprintable()))
    assert failure.error_class.endswith("Unprintable")
    assert "RuntimeError" in failure.message
    assert "Unprintable" in failure.traceback
    assert failure_of(caught(Texts())).message


def test_an_error_s_module_may_be_anything() -> None:
    odd = type("Odd" + "d" * 500, (Exception,), {"__module__": "odd\0"})
    failure = failure_of(odd())
    assert len(failure.error_class) <= 200
    assert "\0" not in failure.error_class


@given(st.text(st.characters(), max_size=200))
def test_every_text_can_be_stored(text: str) -> None:
    failure = failure_of(caught(ValueError(text + "\0\ud800")))
    for stored in (failure.message, failure.traceback):
        assert "\0" not in stored
        stored.encode()


def test_chained_errors_and_groups_are_in_the_traceback() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as first:
            raise ExceptionGroup("second", [ValueError("third")]) from first
    except ExceptionGroup as error:
        failure = failure_of(error)
    assert all(word in failure.traceback for word in ("first", "second", "third"))


SECRET = "hunter2-x9Z"


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        f"PASSWORD = {SECRET}",
        f"DB_PASSWORD: {SECRET}, next",
        f"db-passwd={SECRET}&x=1",
        f"{{'password': '{SECRET}'}}",
        f'{{"access_token": "{SECRET}"}}',
        f'{{\\"token\\": \\"{SECRET}\\"}}',
        f"{{'client_secret': b'{SECRET}'}}",
        f"connect(password='a \\' {SECRET}')",
        f"Authorization: Bearer {SECRET}",
        f"{{'Authorization': 'Basic {SECRET}=='}}",
        f"authorization=Token {SECRET}",
        f"sent Bearer {SECRET}",
        f"api_key={SECRET}",
        f"X-Api-Key: {SECRET}",
        f"apikey => {SECRET}",
        f"Cookie: sessionid={SECRET}; other={SECRET}",
        f"Set-Cookie: a={SECRET}; Path=/",
        f"{{'cookie': 'a={SECRET}'}}",
        f"private_key={SECRET}",
        f"secret={SECRET}",
        f"sessionid={SECRET}",
        f"postgres://user:{SECRET}@host/db",
        f"passphrase = '{SECRET}",
    ],
)
def test_a_secret_is_masked_in_message_and_traceback(text: str) -> None:
    failure = failure_of(caught(RuntimeError(text)))
    assert SECRET not in failure.message + failure.traceback
    assert MASK in failure.message
    assert MASK in failure.traceback


def test_a_secret_that_straddles_the_cut_is_masked() -> None:
    for offset in range(-40, 40, 3):
        text = (
            "x" * (MESSAGE_LIMIT // 2 + offset) + f" password={SECRET * 3} " + "y" * MESSAGE_LIMIT
        )
        assert "hunter2" not in failure_of(ValueError(text)).message


@pytest.mark.parametrize(
    "text",
    [
        "relation jobs_job does not exist",
        "the token was refused",
        "https://example.org:8000/path?x=1",
        "user@example.org",
        "{'order_id': 3}",
    ],
)
def test_text_without_secrets_is_kept_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "piece", ["password", "token=", "'", "a:", "cookie: ", "\\", "Bearer ", "://"]
)
def test_redacting_a_huge_text_takes_linear_time(piece: str) -> None:
    failure_of(ValueError(piece * 100_000))
