"""The scripts, and a call of one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from django_jobs.lanes.keys import LaneKeys, encode

LUA = Path(__file__).parent / "lua"


class Script:
    """A script as the server knows it: the shared part, then the verb's own."""

    def __init__(self, verb: str) -> None:
        self.verb = verb

    @cached_property
    def text(self) -> str:
        """The source."""
        return "\n".join((LUA / f"{name}.lua").read_text() for name in ("lane", self.verb))

    @cached_property
    def sha(self) -> str:
        """What the server calls the loaded script."""
        # The server's name for a script, no matter of security.
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


CLAIM, START, BEAT = Script("claim"), Script("start"), Script("beat")
RELEASE, FINISH, HOLDER = Script("release"), Script("finish"), Script("holder")


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One script with its keys and arguments, ready to be sent."""

    script: Script
    keys: tuple[str, str]
    arguments: tuple[str, ...]

    @classmethod
    def on(cls, script: Script, keys: LaneKeys, job: str, token: str, *more: object) -> ScriptCall:
        """``script`` for the claim (``job``, ``token``) of a lane; ``more`` as the script says."""
        arguments = (keys.tombstones, encode(job), token, *map(str, more))
        return cls(script, (keys.lane, keys.tombstone(job)), arguments)
