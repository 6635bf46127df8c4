"""The admin: what it shows, whom it lets order what, and how an order to many rows ends."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection, connections, transaction
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from django_jobs import enqueue
from django_jobs.admin import JobAdmin, listing, orders, showing
from django_jobs.ids import new_id
from django_jobs.models import Attempt, Job, Outbox
from django_jobs.states import FINISHED, LIVE, State
from tests.app import jobs

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

LIST = "/admin/django_jobs/job/"
OUTBOX = "/admin/django_jobs/outbox/"
EVIL = "<script>alert(1)</script>\"onmouseover='x'</textarea></pre>\u202e\u200b&"


@pytest.fixture
def boss(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ada"))
    return client


def operator(*permissions: str) -> Client:
    """A client of a staff user who has these permissions and no others."""
    user = User.objects.create_user(f"staff{User.objects.count()}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def make(alias: str = "default", **values: Any) -> Job:
    id_ = new_id()
    given = {"name": "tests.app.jobs.noop", "idempotency_key": str(id_), "payload": {}, **values}
    return Job.objects.using(alias).create(id=id_, **given)


def stage(**values: Any) -> Outbox:
    id_ = new_id()
    given = {"name": "a", "idempotency_key": str(id_), "payload": "{}", "batch": uuid.uuid4()}
    return Outbox.objects.create(id=id_, **{**given, **values})


def page(job: Any, what: str = "change") -> str:
    return reverse(f"admin:django_jobs_{job._meta.model_name}_{what}", args=[job.id])


def order(client: Client, verb: str, rows: Any, **answers: Any) -> Any:
    """Give a confirmed order to the ticked rows of the list."""
    data = {"action": f"{verb}_selected", "confirmed": "yes", "reason": "r", **answers}
    data["_selected_action"] = [str(row.pk) for row in rows]
    return client.post(LIST, data, follow=True)


def told(response: Any) -> str:
    return " | ".join(str(message) for message in response.context["messages"])


def state(job: Job) -> str:
    return Job.objects.values_list("state", flat=True).get(pk=job.pk)


# --- looking -------------------------------------------------------------------------------------


def test_the_list_shows_a_job_on_both_engines(boss: Client, jobs_alias: str) -> None:
    job = make(jobs_alias, queue="mail", tenant="acme", attempt=2)
    html = boss.get(LIST).content.decode()
    assert str(job.id) in html and "acme" in html and "2 / 3" in html
    assert boss.get(page(job)).status_code == 200


def test_nothing_can_be_added_changed_or_deleted(boss: Client) -> None:
    job, entry = make(), stage()
    assert boss.get(f"{LIST}add/").status_code == 403
    for row in (job, entry):
        assert boss.post(page(row), {"name": "x"}).status_code == 403
        assert boss.get(page(row, "delete")).status_code == 403
    assert b"delete_selected" not in boss.get(LIST).content


def test_the_page_of_a_job_shows_every_column(boss: Client) -> None:
    columns = {"badge": "state", "tries": "attempt", "superseded": "superseded_by"}
    columns |= {"d_key": "idempotency_key", "d_limit": "concurrency_key", "d_due": "run_at"}
    columns |= {"d_created": "created_at", "d_started": "started_at", "d_finished": "finished_at"}
    columns |= {"d_expires": "lease_expires_at", "age": "run_at"}
    shown = {columns.get(f, f.removeprefix("d_")) for f in JobAdmin.readonly_fields}
    assert shown | {"max_attempts"} == {field.name for field in Job._meta.fields}


def everywhere(boss: Client, job: Job, entry: Outbox) -> str:
    pages = [LIST, f"{LIST}?q={EVIL}", page(job), page(job, "cancel"), page(job, "history")]
    pages += [OUTBOX, page(entry), page(entry, "cancel"), "/admin/"]
    responses = [boss.get(url) for url in pages]
    responses.append(boss.get(LIST, {"queue": EVIL, "job": EVIL, "state": EVIL}))
    ticked = {"action": "retry_selected", "_selected_action": str(job.pk), "index": "0"}
    responses.append(boss.post(LIST, ticked))
    Job.objects.filter(pk=job.pk).update(state="running")
    responses.append(order(boss, "retry", [job], reason=EVIL))
    responses.append(order(boss, "cancel", [job], reason=EVIL))
    responses.append(boss.get(page(job, "history")))
    responses.append(boss.get(page(job)))
    assert {response.status_code for response in responses} == {200}
    for response in responses:
        # Django's own history names the job itself; an attribute is not seen; a search is typed.
        if response.request["PATH_INFO"].endswith("history/") or response.request["QUERY_STRING"]:
            continue
        seen = re.sub(r'aria-label="[^"]*"', "", response.content.decode())
        assert not re.search("[\u202e\u200b]", seen), response.request["PATH_INFO"]
    return "".join(response.content.decode() for response in responses)


def test_markup_and_invisible_characters_in_stored_text_are_only_text(boss: Client) -> None:
    job = make(
        name=EVIL, idempotency_key=EVIL, tenant=EVIL, lane=EVIL, payload={EVIL: EVIL}, result=EVIL,
        progress=[EVIL], worker=EVIL, reason=EVIL, cancelled_by=EVIL, enqueued_by=EVIL,
        release=EVIL, concurrency_key=EVIL, traceparent="</pre><script>", state="running",
        queue=EVIL,
    )  # fmt: skip
    Attempt.objects.create(
        job_id=job.id, number=1, error_class=EVIL, message=EVIL, traceback=EVIL, worker=EVIL
    )
    entry = stage(
        name=EVIL, queue=EVIL, tenant=EVIL, idempotency_key=EVIL, lane=EVIL, last_error=EVIL,
        payload=json.dumps({EVIL: EVIL}), enqueued_by=EVIL, outcome="quarantined",
    )  # fmt: skip
    html = everywhere(boss, job, entry)
    assert html.count("&lt;script&gt;alert(1)") > 40
    assert "<script>alert" not in html and "</textarea></pre>" not in html
    assert not re.search(r"<[^>]*\sonmouseover=", html)


def test_values_of_secret_looking_keys_are_masked(boss: Client) -> None:
    secret = "hunter2" * 3
    hidden = {"password": secret, "deep": [{"api_key": secret, "Authorization": {"x": secret}}]}
    hidden["url"] = f"postgres://me:{secret}@host/db"
    job = make(payload=hidden, result=hidden, progress=hidden, reason=f"token={secret}")
    entry = stage(payload=json.dumps(hidden), last_error=f"password={secret}")
    html = boss.get(page(job)).content.decode() + boss.get(page(entry)).content.decode()
    assert secret not in html
    assert html.count("***") >= 16


def test_long_values_are_cut_with_a_note(boss: Client) -> None:
    job = make(payload=["x" * 50_000], reason="r" * 50_000, state="dead")
    Attempt.objects.create(job_id=job.id, number=1, error_class="E", traceback="t" * 500_000)
    response = boss.get(page(job))
    html = response.content.decode()
    assert len(html) < 80_000
    assert "more characters are not shown" in html and "The rest is not shown." in html


def test_a_document_that_is_too_large_is_not_even_read(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_jobs.admin import jobs as admin_jobs

    monkeypatch.setattr(showing, "PARSE_LIMIT", 100)
    monkeypatch.setattr(admin_jobs, "PARSE_LIMIT", 100)
    html = boss.get(page(make(payload=["x" * 200]))).content.decode()
    assert "Too large to show" in html and "xxx" not in html


def test_an_unknown_state_is_marked_and_breaks_nothing(boss: Client) -> None:
    job = make()
    name = "django_jobs_job_state"
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE django_jobs_job DROP CONSTRAINT {name}")
    try:
        Job.objects.filter(pk=job.pk).update(state="paused")
        for url in (LIST, f"{LIST}?state=unknown", page(job), page(job, "cancel")):
            assert "paused" in (html := boss.get(url).content.decode()) or "cancel" in url, html
        assert "unknown to this release" in boss.get(LIST).content.decode()
        assert "this release knows" in told(order(boss, "cancel", [job], reason="r"))
    finally:
        Job.objects.all().delete()
        constraint = next(c for c in Job._meta.constraints if c.name == name)
        with connection.schema_editor() as editor:
            editor.add_constraint(Job, constraint)


def test_a_cancelled_job_whose_body_still_runs_is_stopping(boss: Client) -> None:
    soon = timezone.now() + timedelta(minutes=1)
    stopping = make(state="cancelled", worker="w", lease_expires_at=soon)
    ended = make(state="cancelled", worker="w", lease_expires_at=timezone.now())
    html = boss.get(f"{LIST}?state=stopping").content.decode()
    assert str(stopping.id) in html and str(ended.id) not in html
    assert "dj-stopping" in boss.get(page(stopping)).content.decode()
    assert "dj-stopping" not in boss.get(page(ended)).content.decode()


@pytest.mark.parametrize(
    ("zone", "label"),
    [
        ("UTC", "10:00:00 UTC"),
        ("Europe/Paris", "11:00:00 +01:00"),
        ("Asia/Kolkata", "15:30:00 +05:30"),
    ],
)
def test_every_time_shows_its_zone(boss: Client, settings: Any, zone: str, label: str) -> None:
    settings.TIME_ZONE = zone
    at = timezone.datetime(2026, 1, 5, 10, tzinfo=timezone.timezone.utc)  # type: ignore[attr-defined]
    job = make(run_at=at)
    for url in (LIST, page(job)):
        html = boss.get(url).content.decode()
        assert f"2026-01-05 {label}" in html
        assert f"Times are in the time zone {zone}." in html


def test_jobs_of_one_transaction_are_each_on_one_page(boss: Client) -> None:
    with transaction.atomic():
        at = timezone.now()
        made = {make(created_at=at, run_at=at).pk for _ in range(500)}
    seen: list[Any] = []
    for number in range(1, 6):
        seen += [row.pk for row in boss.get(LIST, {"p": number}).context["cl"].result_list]
    assert len(seen) == 500 and set(seen) == made


def test_the_list_counts_to_10_001_and_leads_on(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_jobs_job (id, run_id, name, idempotency_key, payload) "
            "SELECT gen_random_uuid(), gen_random_uuid(), 'n', i::text, '{}' "
            "FROM generate_series(1, 10100) AS i"
        )
    with CaptureQueriesContext(connection) as queries:
        response = boss.get(LIST)
    assert response.context["cl"].result_count == listing.COUNT_LIMIT == 10_001
    counting = [q["sql"] for q in queries if "COUNT(" in q["sql"]]
    assert counting and all("LIMIT 10001" in sql for sql in counting)
    last = boss.get(LIST, {"p": 101})
    assert last.context["cl"].page_num == 101
    older = boss.get(LIST + last.context["older"])
    assert older.context["cl"].result_count == 99


def test_the_list_reads_no_documents_and_no_distinct_values(boss: Client) -> None:
    make(queue="mail")
    with CaptureQueriesContext(connection) as queries:
        html = boss.get(LIST).content.decode()
    asked = [q["sql"] for q in queries if "django_jobs_job" in q["sql"]]
    assert asked and not [sql for sql in asked if '"payload"' in sql or "DISTINCT" in sql]
    assert "?queue=mail" in html


def test_filters_and_search_find_the_job(boss: Client) -> None:
    wanted = make(queue="mail", state="dead", idempotency_key="charge:7", enqueued_by="shop")
    make(name="of.another.release")
    entry = stage(outcome="deduped", job_id=wanted.id)
    for query in (
        {"state": "dead"}, {"queue": "mail"}, {"job": "tests.app.jobs.noop"},
        {"q": str(wanted.id)}, {"q": "charge:"}, {"q": "by:shop"}, {"q": str(entry.id)},
    ):  # fmt: skip
        found = boss.get(LIST, query).context["cl"].result_list
        assert [row.pk for row in found] == [wanted.pk], query
    assert not boss.get(LIST, {"q": "harge"}).context["cl"].result_list
    (other,) = boss.get(LIST, {"job": listing.NameFilter.other}).context["cl"].result_list
    assert other.name == "of.another.release"
    assert boss.get(LIST, {"queue": "\x00"}).status_code == 302


def test_queues_are_found_one_step_each(boss: Client) -> None:
    for name in ("b", "a", "c"):
        for _ in range(3):
            make(queue=name)
    make(queue="finished", state="done")
    with CaptureQueriesContext(connection) as queries:
        assert list(listing.ready_queues()) == ["a", "b", "c"]
    assert len(queries) == 4


# --- ordering ------------------------------------------------------------------------------------


def test_looking_does_not_allow_ordering() -> None:
    client, job = operator("view_job"), make()
    html = client.get(LIST).content.decode()
    assert str(job.id) in html and "cancel_selected" not in html
    assert "/cancel/" not in client.get(page(job)).content.decode()
    for what in ("cancel", "retry"):
        assert client.post(page(job, what), {"confirmed": "y", "reason": "r"}).status_code == 403
    order(client, "cancel", [job], reason="r")
    assert state(job) == "ready"


def test_ordering_needs_looking_too() -> None:
    client, job = operator("cancel_job"), make()
    assert client.get(LIST).status_code == 403
    assert client.post(page(job, "cancel"), {"confirmed": "y", "reason": "r"}).status_code == 403
    assert state(job) == "ready"


def test_each_order_has_its_own_permission() -> None:
    client = operator("view_job", "cancel_job")
    live, dead = make(), make(state="dead")
    assert client.get(page(dead, "retry")).status_code == 403
    order(client, "retry", [dead])
    order(client, "cancel", [live], reason="r")
    assert (state(dead), state(live)) == ("dead", "cancelled")


def test_an_order_needs_a_csrf_token(boss: Client) -> None:
    job = make()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = boss.cookies
    answers = {"confirmed": "yes", "reason": "r"}
    for url in (page(job, "cancel"), LIST):
        data = {**answers, "action": "cancel_selected", "_selected_action": str(job.pk)}
        assert strict.post(url, data).status_code == 403
    html = strict.get(page(job, "cancel")).content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', html)
    assert token
    strict.post(page(job, "cancel"), {**answers, "csrfmiddlewaretoken": token[1]})
    assert state(job) == "cancelled"


def test_a_cancel_asks_back_counts_and_wants_a_reason(boss: Client) -> None:
    rows = [make(tenant="acme"), make(tenant="acme", state="done"), make(tenant="globex")]
    ticked = {"action": "cancel_selected", "_selected_action": [str(row.pk) for row in rows]}
    asked = boss.post(LIST, {**ticked, "index": "0", "select_across": "0"})
    groups = [
        (strip_tags(g["name"]), strip_tags(g["tenant"]), g["jobs"], g["able"])
        for g in asked.context["groups"]
    ]
    noop = "tests.app.jobs.noop"
    assert groups == [(noop, "acme", 2, 1), (noop, "globex", 1, 1)]
    for reason in ("", "   "):
        again = order(boss, "cancel", rows, reason=reason)
        assert again.context["form"].errors["reason"]
    assert [state(row) for row in rows] == ["ready", "done", "ready"]


def test_a_cancel_by_get_only_asks(boss: Client) -> None:
    job = make()
    boss.get(page(job, "cancel"), {"confirmed": "yes", "reason": "r"})
    assert state(job) == "ready"


def test_who_and_why_are_stored(boss: Client) -> None:
    job = make()
    response = boss.post(page(job, "cancel"), {"confirmed": "yes", "reason": "a mistake"})
    assert response["Location"] == page(job)
    job.refresh_from_db()
    assert (job.state, job.cancelled_by, job.reason) == ("cancelled", "ada", "a mistake")
    (logged,) = LogEntry.objects.filter(object_id=str(job.pk))
    assert "a mistake" in logged.change_message


def test_every_live_state_is_cancelled_with_no_worker_up(boss: Client) -> None:
    rows = [make(state=s.value, blocked=s is State.READY) for s in LIVE]
    rows.append(make(state="suspended", run_at=timezone.now() + timedelta(days=1)))
    answer = order(boss, "cancel", rows, reason="r")
    assert "5 jobs were cancelled." in told(answer)
    assert {state(row) for row in rows} == {"cancelled"}
    again = make(idempotency_key=rows[0].idempotency_key)
    assert state(again) == "ready"


def test_what_cannot_be_cancelled_is_told_row_by_row(boss: Client) -> None:
    live, finished = make(), [make(state=s.value) for s in FINISHED]
    text = told(order(boss, "cancel", [live, *finished], reason="r"))
    assert "1 job was cancelled." in text and "4 were not cancelled" in text
    assert all(str(row.id) in text for row in finished)


def test_at_most_20_refusals_are_told(boss: Client) -> None:
    text = told(order(boss, "cancel", [make(state="done") for _ in range(23)], reason="r"))
    assert text.count("<li") == 20 and "and 3 more" in text


@pytest.mark.parametrize("atomic_requests", [False, True])
def test_three_locked_rows_of_100_keep_no_other_from_its_cancel(
    boss: Client, settings: Any, monkeypatch: pytest.MonkeyPatch, atomic_requests: bool
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    rows = [make() for _ in range(100)]
    locked = rows[10:13]
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as other:
        ids = [row.pk for row in locked]
        other.execute("SELECT 1 FROM django_jobs_job WHERE id = ANY(%s) FOR UPDATE", [ids])
        text = told(order(boss, "cancel", rows, reason="r"))
        assert "97 jobs were cancelled." in text and "3 were not cancelled" in text
        assert text.count("Another transaction held it") == 3
    assert {state(row) for row in locked} == {"ready"}
    assert Job.objects.filter(state="cancelled").count() == 97


def test_everything_that_a_filter_finds_can_be_ordered_over_several_pages(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "PAGE", 7)
    rows = [make(queue="mail") for _ in range(30)]
    spared = make(queue="other")
    data = {"action": "cancel_selected", "confirmed": "y", "reason": "r", "select_across": "1"}
    url = f"{LIST}?queue=mail&state=ready"
    answer = boss.post(url, {**data, "_selected_action": [str(rows[0].pk)]}, follow=True)
    assert "30 jobs were cancelled." in told(answer)
    assert state(spared) == "ready"


def test_an_order_stops_at_its_limit_and_says_so(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "ROW_LIMIT", 3)
    text = told(order(boss, "cancel", [make() for _ in range(5)], reason="r"))
    assert "3 jobs were cancelled." in text and "order it again" in text


def test_a_retry_takes_dead_and_failed_and_others_only_when_forced(boss: Client) -> None:
    rows = [make(state=s.value) for s in FINISHED]
    answer = order(boss, "retry", rows)
    assert "2 jobs were put back" in told(answer) and "2 were not" in told(answer)
    assert [state(row) for row in rows] == ["done", "ready", "ready", "cancelled"]
    order(boss, "retry", rows, force="on")
    assert {state(row) for row in rows} == {"ready"}


def test_of_two_dead_jobs_with_one_key_one_runs_again(boss: Client) -> None:
    rows = [make(state="dead", idempotency_key="same") for _ in range(2)]
    text = told(order(boss, "retry", rows))
    assert "1 job was put back" in text and "holds its idempotency key" in text


def test_a_retry_is_refused_while_the_body_still_stops(boss: Client) -> None:
    soon = timezone.now() + timedelta(minutes=1)
    job = make(state="cancelled", worker="w", lease_expires_at=soon)
    assert "still stopping" in told(order(boss, "retry", [job], force="on"))


def test_a_staged_entry_is_cancelled_and_a_quarantined_one_retried(boss: Client) -> None:
    with transaction.atomic():
        made = enqueue(jobs.noop)
    entry = Outbox.objects.get(id=made.id)
    boss.post(page(entry, "cancel"), {"confirmed": "y", "reason": "a mistake"})
    entry.refresh_from_db()
    assert (entry.outcome, entry.cancelled_by) == ("cancelled", "ada")
    broken = stage(outcome="quarantined", attempts=5)
    boss.post(page(broken, "retry"), {"confirmed": "y", "reason": "mended"})
    broken.refresh_from_db()
    assert (broken.outcome, broken.attempts) == (None, 0)
    assert (broken.retried_by, broken.retry_reason) == ("ada", "mended")
    for row, words in ((entry, ("ada", "a mistake")), (broken, ("ada", "mended"))):
        html = boss.get(page(row)).content.decode()
        assert all(word in html for word in words)


def test_the_page_of_a_retried_job_says_who_wanted_it_and_why(boss: Client) -> None:
    job = make(state="dead")
    order(boss, "retry", [job], reason="the printer is back")
    html = strip_tags(boss.get(page(job)).content.decode())
    assert "the printer is back" in html and "Retried by" in html


def test_entries_of_another_database_are_named_by_their_id(boss: Client, settings: Any) -> None:
    settings.DJANGO_JOBS = {"OUTBOX_DATABASES": ["default", "other"]}
    here = stage(name="here")
    there = Outbox.objects.using("other").create(
        id=new_id(), name="there", idempotency_key="k", payload="{}", batch=uuid.uuid4()
    )
    shown = boss.get(OUTBOX, {"database": "other"})
    assert page(there) in shown.content.decode() and page(here) not in shown.content.decode()
    assert "there" in boss.get(page(there)).content.decode()
    boss.post(page(there, "cancel"), {"confirmed": "y", "reason": "r"})
    there.refresh_from_db()
    here.refresh_from_db()
    assert (there.outcome, here.outcome) == ("cancelled", None)


# --- tenants -------------------------------------------------------------------------------------


@pytest.fixture
def acme_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operator belongs to the tenant ``acme``."""
    monkeypatch.setattr(JobAdmin, "tenant_of", lambda self, request: "acme")


@pytest.mark.usefixtures("acme_only")
def test_an_operator_of_a_tenant_sees_and_orders_nothing_else(boss: Client) -> None:
    ours, theirs = make(tenant="acme"), make(tenant="globex")
    assert [row.pk for row in boss.get(LIST).context["cl"].result_list] == [ours.pk]
    assert not boss.get(LIST, {"q": str(theirs.id)}).context["cl"].result_list
    assert boss.get(page(theirs)).status_code == 302
    boss.post(page(theirs, "cancel"), {"confirmed": "y", "reason": "r"})
    order(boss, "cancel", [ours, theirs], reason="r")
    assert (state(ours), state(theirs)) == ("cancelled", "ready")


@pytest.mark.usefixtures("acme_only")
def test_the_tenant_is_checked_by_the_operation_too(boss: Client) -> None:
    job = make(tenant="globex")
    request = RequestFactory().post("/")
    tenant = admin.site.get_model_admin(Job).tenant_of(request)  # type: ignore[attr-defined]
    report = orders.carry_out(
        orders.CANCEL, Job.objects.filter(pk=job.pk), tenant, "ada", {"reason": "r"}
    )
    assert report.refused == 1 and "There is no job" in report.refusals[0][1]


def test_the_permissions_come_with_the_migrations() -> None:
    found = set(Permission.objects.values_list("codename", flat=True))
    assert {"cancel_job", "retry_job"} <= found
    assert connections["default"].vendor == "postgresql"


def test_the_search_for_a_key_reads_indexes_whatever_history_there_is(boss: Client) -> None:
    """ADM-09."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_jobs_job (id, run_id, name, idempotency_key, payload, state, "
            "finished_at) SELECT gen_random_uuid(), gen_random_uuid(), 'tests.many', 'many:' || n, "
            "'{}', CASE WHEN n % 10 = 0 THEN 'ready' ELSE 'done' END, statement_timestamp() "
            "FROM generate_series(1, 50000) AS n"
        )
        cursor.execute("ANALYZE django_jobs_job")
    with CaptureQueriesContext(connection) as queries:
        found = boss.get(LIST, {"q": "many:4321"}).context["cl"]
    assert found.result_count == 11
    asked = [query["sql"] for query in queries if "many:4321" in query["sql"]]
    assert len(asked) >= 2
    with connection.cursor() as cursor:
        for sql in asked:
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "django_jobs_job_past_key" in plan and "Seq Scan" not in plan, plan
