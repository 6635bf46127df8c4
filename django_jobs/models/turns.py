"""What statements that serve tenants in turn are told, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django_jobs.models.lane import LaneKey

PLACE_TYPES: Mapping[str, str] = {"buffer": "text", "room": "int", "after": "text"}
"""One buffer: how many it may take (``None``: any number), and the tenant that was served last."""


class Claimed(NamedTuple):
    """A leased entry. ``buffer`` is its queue if it needs room there, else ``""``.

    ``turn`` is its place in the fair order of one claim, from 1.
    """

    lane: LaneKey | None
    queue: str
    buffer: str
    tenant: str
    turn: int
