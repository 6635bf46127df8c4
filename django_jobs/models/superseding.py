"""What publishing does to a lane: the newest published job wins, older ones are superseded.

Every function here is called in a publishing transaction that holds the lanes' stripes
(``lane.lock_and_draw``), so that no two publishers are in one lane at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django_jobs import definitions
from django_jobs.models import picking
from django_jobs.models.lane import LaneKey
from django_jobs.models.outbox import ENTRY_TYPES, Entry

_NEWER_TYPES = {"id": "uuid", "spare": "bool"}
_KEY_TYPES = {n: ENTRY_TYPES[n] for n in ("id", "name", "tenant", "idempotency_key", "lane")}
_HEAD_TYPES = {"name": "text", "tenant": "text", "lane": "text", "token": "bigint"}
_HEAD_TYPES |= {"id": "uuid", "ended": "int"}
_RIVAL_TYPES = {"seq": "bigint", "name": "text", "tenant": "text", "lane": "text"}
_DISPLACED_TYPES = {"seq": "bigint", "job_id": "uuid"}


class Announced(NamedTuple):
    """A lane job that was published: what an adviser of running workers may tell them.

    ``delay``: seconds until it is due.
    """

    key: LaneKey
    job_id: UUID
    token: int
    delay: float


class Superseded(NamedTuple):
    """A job that gave way to ``by``. ``ran``: its body was running, and is stopping."""

    job_id: UUID
    key: LaneKey
    by: UUID
    ran: bool


class Rival(NamedTuple):
    """An unpublished entry of a lane, locked."""

    seq: int
    key: LaneKey


def lane_of(entry: Entry) -> LaneKey | None:
    """The lane that ``entry`` belongs to, if any."""
    lane = entry["lane"]
    return None if lane is None else LaneKey(entry["name"], entry["tenant"], lane)


def in_turns(entries: Sequence[Entry]) -> Iterable[list[Entry]]:
    """``entries`` in order, cut where one must be published before the next is looked at.

    Inside a lane the order decides which keys are free; calls that are work of their own
    (``PER_CALL``) cannot meet a holder, however many of a lane there are.
    """
    turn: list[Entry] = []
    lanes: dict[LaneKey, bool] = {}
    for entry in entries:
        key = lane_of(entry)
        keyed = key is not None and entry["idempotency_key"] != str(entry["id"])
        if key in lanes and (keyed or lanes[key]):
            yield turn
            turn, lanes = [], {}
        turn.append(entry)
        if key is not None:
            lanes[key] = lanes.get(key, False) or keyed
    if turn:
        yield turn


def free_keys(alias: str, entries: Sequence[Entry]) -> list[Superseded]:
    """Supersede claimed jobs that hold the key of one of these entries in its own lane.

    Their runs may have read data older than the entry; one that was never claimed still will
    read it, and keeps its key.
    """
    keyed = [e for e in entries if e["lane"] is not None and e["idempotency_key"] != str(e["id"])]
    if not keyed:
        return []
    source, parameters = picking.rows(alias, _KEY_TYPES, keyed)
    return _superseded(picking.run(alias, "free_lane_keys", parameters, called=source))


def supersede(alias: str, names: Mapping[UUID, str], *, now: bool = False) -> list[Superseded]:
    """End what is older than these published jobs (their ids, with their names) in their lanes.

    Jobs declared with ``supersede_running="on_start"`` spare what runs, unless ``now``.
    """
    if not names:
        return []
    values = [{"id": id_, "spare": not now and spares(name)} for id_, name in names.items()]
    source, parameters = picking.rows(alias, _NEWER_TYPES, values)
    return _superseded(picking.run(alias, "supersede", parameters, called=source))


def spares(name: str) -> bool:
    """Whether what runs goes on until a newer job starts.

    An unknown job's older runs stop at once, which is safe whatever it declares.
    """
    definition = definitions.definition(name)
    return definition is not None and definition.supersede_running == "on_start"


def _superseded(rows: Iterable[tuple[Any, ...]]) -> list[Superseded]:
    # Its body was running if the row has an expiry. The statement returns the column itself: after
    # an UPDATE ... FROM, SQLite 3.40 answers IS NOT NULL in RETURNING with TRUE for a NULL.
    return [
        Superseded(
            picking.to_uuid(id_),
            LaneKey(name, tenant, lane),
            picking.to_uuid(by),
            expiry is not None,
        )
        for id_, name, tenant, lane, by, expiry, state in rows
        if state == "cancelled"
    ]


def note_heads(
    alias: str, announced: Iterable[Announced], superseded: Iterable[Superseded]
) -> dict[str, int]:
    """Write the lanes' head rows; for each job name the longest row of superseded runs."""
    newest = {one.key: one for one in sorted(announced, key=lambda one: one.token)}
    if not newest:
        return {}
    ended = Counter(one.key for one in superseded if one.ran)
    values = [
        {**key._asdict(), "token": one.token, "id": one.job_id, "ended": ended[key]}
        for key, one in newest.items()
    ]
    source, parameters = picking.rows(alias, _HEAD_TYPES, values)
    longest: dict[str, int] = {}
    for name, supersessions in picking.run(alias, "lane_heads", parameters, called=source):
        longest[name] = max(longest.get(name, 0), supersessions)
    return longest


def lock_rivals(alias: str, lanes: Mapping[int, LaneKey | None]) -> list[Rival]:
    """Lock the entries of a claim (by ``seq``) and what they may displace; the lanes' entries.

    Before any job row is locked, in the order of ``seq`` (the package's lock order).
    """
    blank = dict.fromkeys(LaneKey._fields)
    values = [
        {"seq": seq, **(blank if key is None else key._asdict())} for seq, key in lanes.items()
    ]
    return _lock_rivals(alias, values)


def lock_all_entries(alias: str, keys: Iterable[LaneKey]) -> list[Rival]:
    """Lock every committed entry of these lanes that has become nothing yet."""
    return _lock_rivals(alias, [{"seq": None, **key._asdict()} for key in keys])


def _lock_rivals(alias: str, values: Sequence[Mapping[str, Any]]) -> list[Rival]:
    source, parameters = picking.rows(alias, _RIVAL_TYPES, values)
    rows = picking.run(alias, "lock_rivals", parameters, called=source)
    return [
        Rival(seq, LaneKey(name, tenant, lane))
        for seq, name, tenant, lane in rows
        if lane is not None
    ]


def displace(
    alias: str,
    rivals: Sequence[Rival],
    winners: Mapping[LaneKey, Sequence[tuple[int | None, UUID]]],
) -> int:
    """Retire entries that were staged before a winner of their lane; how many.

    ``winners``: for each lane ``seq`` and job id of what was published, ascending; ``None``
    stands for a job that was published at once, after everything that is committed.
    """
    own = {seq for published in winners.values() for seq, _ in published}
    values = []
    for rival in rivals:
        if rival.seq in own:
            continue
        for seq, job_id in winners.get(rival.key, ()):
            if seq is None or seq > rival.seq:
                values.append({"seq": rival.seq, "job_id": job_id})
                break
    if not values:
        return 0
    source, parameters = picking.rows(alias, _DISPLACED_TYPES, values)
    return len(picking.run(alias, "displace", parameters, called=source))
