"""What must hold before a backfill runs, what a deploy waits for, and order with migrations."""

from __future__ import annotations

import dataclasses
import json
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.migrations.state import ProjectState

from django_jobs import backfill
from django_jobs.backfills import Backfill as Declaration
from django_jobs.backfills import backfills
from django_jobs.backfills import declared as registered
from django_jobs.contrib.migrating import RequireBackfill
from django_jobs.definitions import registered as jobs
from django_jobs.errors import AtomicNeedsOneDatabase, BackfillRefused, DeclarationError
from django_jobs.models import Backfill, Job
from django_jobs.operations.backfilling import found_pass
from django_jobs.operations.reporting import report
from django_jobs.testing import drain
from tests.app.backfills import count_changes, fill, fill_tenant, items, tell_outside
from tests.app.models import Item
from tests.backfills.parties import changes, make_items, start, sweep

GATED: dict[str, Any] = {
    "environment": {"environments": ("production",)},
    "requires": {"requires": (("testapp", "0099_later"),)},
    "depends_on": {"depends_on": ("count_changes",)},
}


def declare(monkeypatch: pytest.MonkeyPatch, one: Declaration, **values: Any) -> None:
    monkeypatch.setattr(one, "declared", dataclasses.replace(one.declared, **values))


@pytest.mark.parametrize("gate, values", GATED.items(), ids=GATED)
def test_a_closed_gate_refuses_the_start_also_by_force_and_writes_nothing(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch, gate: str, values: Any
) -> None:
    declare(monkeypatch, fill, **values)
    for force in (False, True):
        with pytest.raises(BackfillRefused) as refused:
            start(fill, force=force)
        assert refused.value.gate == gate
    assert not Backfill.objects.exists()
    assert not Job.objects.exists()


def test_gates_open_with_what_they_ask_for(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    declare(
        monkeypatch,
        fill,
        environments=("production", "staging"),
        requires=(("django_jobs", "0001"),),
        depends_on=("count_changes",),
    )
    sweep(count_changes)
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ENVIRONMENT": "staging"}
    assert sweep(fill).state == "completed"


def test_a_pass_looks_at_its_gates_itself_and_fails_without_a_page(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_items(2)
    for values in (GATED["environment"], GATED["requires"]):
        started = start(count_changes)
        with monkeypatch.context() as meanwhile:
            declare(meanwhile, count_changes, **values)
            drain()
        failed = found_pass(started.pk)
        assert (failed.state, failed.rows) == ("failed", 0)
        assert "BackfillRefused" in failed.error
    assert changes() == [0, 0]


def test_exactly_once_is_refused_for_rows_in_another_database(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (count_changes, tell_outside):
        declare(monkeypatch, one, source=lambda: Item.objects.using("other"))
    with pytest.raises(AtomicNeedsOneDatabase):
        start(count_changes)
    assert not Backfill.objects.exists()


def standings() -> dict[str, str]:
    return {f"{s.name}{s.tenant and ':'}{s.tenant}": s.state for s in report().standings}


def test_the_report_says_what_is_pending_and_what_nothing_declares(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(standings().values()) == {"pending"}
    declare(monkeypatch, tell_outside, environments=("production",))
    make_items(2)
    sweep(count_changes)
    sweep(fill_tenant, tenant="acme")
    start(fill)
    Backfill.objects.create(name="gone", checksum="x", state="completed")
    Backfill.objects.create(name="gone", checksum="x", state="completed")
    found = standings()
    assert found["tell_outside"] == "excluded"
    assert (found["count_changes"], found["fill"]) == ("completed", "running")
    assert (found["fill_tenant:acme"], found["fill_tenant:bolt"]) == ("completed", "pending")
    assert report().orphaned == ["gone"]


def test_a_completed_backfill_stays_completed_when_a_forced_rerun_fails(jobs_alias: str) -> None:
    sweep(count_changes)
    again = start(count_changes, force=True)
    Backfill.objects.filter(pk=again.pk).update(state="failed")
    assert standings()["count_changes"] == "completed"


def test_code_that_changed_after_a_pass_is_told_and_does_not_run_it_again(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    sweep(count_changes)
    monkeypatch.setattr(count_changes, "checksum", "0" * 32)
    [one] = [s for s in report().standings if s.name == "count_changes"]
    assert (one.state, one.changed) == ("completed", True)
    with pytest.raises(BackfillRefused, match="completed already"):
        start(count_changes)


def test_the_checksum_follows_the_code_and_its_helpers_and_nothing_else() -> None:
    def made(body: str, helper: str, batch: int = 1, comment: str = "") -> str:
        scope: dict[str, Any] = {"__name__": "tests.made", "backfill": backfill, "Item": Item}
        text = (
            f"def helper(n):\n    return {helper}\ndef handle(page):\n    {comment}\n    {body}\n"
        )
        exec(text, scope)
        declare_ = backfill(source=Item.objects.all, batch=batch, name=f"made {body} {helper}")
        try:
            return declare_(scope["handle"]).checksum
        finally:
            for name in [n for n in backfills() if n.startswith("made ")]:
                registered._backfills.pop(name)
                jobs._definitions.pop(name)

    one = made("helper(1)", "n + 1")
    assert len(one) == 32
    assert one == made("helper(1)", "n + 1", batch=7, comment="# says why")
    assert one != made("helper(2)", "n + 1")
    assert one != made("helper(1)", "n + 2")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "batch 0": ({"batch": 0}, "batch=0"),
    "batch text": ({"batch": "5"}, "batch='5'"),
    "rate 0": ({"rate": 0}, "rate=0"),
    "rate nan": ({"rate": float("nan")}, "rate=nan"),
    "a queryset": ({"source": 5}, "source=5"),
    "a text for names": ({"environments": "production"}, "environments"),
    "a migration": ({"requires": ["0042"]}, "requires"),
    "a tenant's name": ({"tenant": "acme"}, "tenant='acme'"),
    "shards of two columns": ({"shards": 2, "order_by": ("rank", "pk")}, "shards=2"),
}


@pytest.mark.parametrize("values, reason", REFUSED.values(), ids=REFUSED)
def test_a_wrong_declaration_is_refused_with_the_edit_that_mends_it(
    values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DeclarationError, match=reason):
        backfill(**{"source": items, **values})(lambda page: None)


# The command


def run(*words: str) -> tuple[int, dict[str, Any]]:
    out = StringIO()
    try:
        call_command("backfill", *words, "--json", stdout=out)
        code = 0
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    return code, json.loads(out.getvalue())


def test_pending_ends_non_zero_until_everything_is_completed(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_items(3)
    monkeypatch.setattr(registered, "_backfills", {"fill": fill})
    code, told = run("pending")
    assert (code, told["pending"], told["backfills"][0]["state"]) == (1, 1, "pending")
    code, told = run("run", "--all")
    assert (code, told["runs"][0]["action"]) == (0, "enqueued")
    assert run("pending")[0] == 0
    assert run("pending", "--complete")[0] == 1
    drain()
    code, told = run("pending", "--complete")
    assert (code, told["pending"], told["backfills"][0]["pass"] is None) == (0, 0, False)
    code, told = run("run", "--all")
    assert (code, told["runs"][0]["action"]) == (0, "skipped")


def test_a_second_run_is_told_the_live_job_and_ends_non_zero(jobs_alias: str) -> None:
    code, first = run("run", "count_changes")
    assert code == 0
    code, second = run("run", "count_changes")
    assert code == 1
    assert second["runs"][0]["action"] == "running"
    assert second["runs"][0]["job"] == first["runs"][0]["job"]


def test_one_blocked_name_holds_up_no_other(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, count_changes, **GATED["requires"])
    code, told = run("run", "--all")
    actions = {row["name"]: row["action"] for row in told["runs"]}
    assert (code, actions["count_changes"], actions["fill"]) == (1, "blocked", "enqueued")


def test_a_dry_run_says_what_pages_would_do_and_changes_nothing(jobs_alias: str) -> None:
    make_items(10)
    code, told = run("run", "fill", "--dry-run", "--pages", "2")
    assert code == 0
    [planned] = told["runs"]
    seen = planned["rehearsal"]
    assert (planned["action"], planned["remaining"]) == ("planned", 10)
    assert (seen["pages"], seen["rows"], seen["rows_changed"]) == (2, 6, 6)
    assert sum(s["times"] for s in seen["statements"] if s["sql"].startswith("UPDATE")) == 2
    if jobs_alias == "default":
        assert "testapp_item: RowExclusiveLock" in seen["locks"]
        assert seen["estimated_seconds"] > 0
    assert changes() == [0] * 10
    assert not Backfill.objects.exists()
    assert not Job.objects.exists()


def test_a_count_that_raises_leaves_the_plan_with_an_unknown_rest(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(fill), "remaining", lambda self, tenant: 1 / 0)
    code, told = run("run", "fill", "--dry-run")
    assert (code, told["runs"][0]["action"], told["runs"][0]["remaining"]) == (0, "planned", None)


def test_a_dry_run_of_what_nothing_takes_back_is_refused(jobs_alias: str) -> None:
    code, told = run("run", "tell_outside", "--dry-run")
    assert (code, told["runs"][0]["action"]) == (1, "blocked")


def test_the_list_is_filtered_and_newest_first(jobs_alias: str) -> None:
    first = sweep(count_changes)
    second = sweep(count_changes, force=True)
    other = start(fill)
    assert [p["pass"] for p in run("list")[1]["passes"]] == [
        str(row.pk) for row in (other, second, first)
    ]
    assert len(run("list", "--name", "count_changes")[1]["passes"]) == 2
    assert len(run("list", "--state", "running")[1]["passes"]) == 1
    assert len(run("list", "--limit", "1")[1]["passes"]) == 1


def test_orders_reach_the_newest_pass(jobs_alias: str) -> None:
    started = start(count_changes)
    for order, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        call_command("backfill", order, "count_changes", stdout=StringIO())
        assert found_pass(started.pk).state == state
    again = start(count_changes)
    call_command("backfill", "rate", "count_changes", "250", "--rows", stdout=StringIO())
    row = found_pass(again.pk)
    assert (row.rate, row.rate_per) == (250.0, "rows")


@pytest.mark.parametrize(
    "words, reason",
    [
        (("run",), "required"),
        (("run", "fill", "--all"), "not allowed"),
        (("list", "--limit", "0"), "at least 1"),
        (("list", "--state", "resting"), "invalid choice"),
        (("pending", "--force"), "unrecognized"),
        (("run", "nonesuch"), "No backfill is called 'nonesuch'"),
        (("pause", "count_changes"), "no pass yet"),
        (("rate", "count_changes", "fast"), "no rate"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_with_a_reason(
    jobs_alias: str, words: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("backfill", *words)


# Migrations


def require(alias: str) -> None:
    operation = RequireBackfill("fill", model="testapp.Item")
    state = ProjectState.from_apps(apps)
    with connections[alias].schema_editor() as editor:
        operation.database_forwards("testapp", editor, state, state)


def test_a_migration_waits_for_its_backfill_unless_there_is_no_row(jobs_alias: str) -> None:
    require(jobs_alias)
    make_items(2)
    with pytest.raises(BackfillRefused, match="backfill run fill"):
        require(jobs_alias)
    sweep(fill)
    require(jobs_alias)
