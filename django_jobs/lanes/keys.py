"""The names of a lane's keys.

::

    <prefix>:<deployment>:lane:{<name>:<tenant>:<key>}                   the lane
    <prefix>:<deployment>:lane:superseded:{<name>:<tenant>:<key>}:<job>  a tombstone

The part in braces is the hash tag, so that all keys of a lane live on one node of a cluster. Every
part is percent-encoded: no two lanes share a key, and no text of a user reaches a script raw.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple
from urllib.parse import quote, unquote

LONGEST_TAG = 200
"""Bytes of ``name:tenant:key`` above which a hash stands for it."""


class LaneKeys(NamedTuple):
    """The keys of one lane."""

    lane: str
    tombstones: str
    """Prefix; the encoded id of a job follows."""

    def tombstone(self, job: str) -> str:
        """The key that says by whom ``job`` was superseded."""
        return self.tombstones + encode(job)


def encode(text: str) -> str:
    """``text`` in letters, digits and ``_.-~%``; different texts stay different.

    Raises ``ValueError`` for a lone surrogate, which is no valid text.
    """
    return quote(text, safe="")


def decode(text: str) -> str:
    """What was given to ``encode``."""
    return unquote(text)


def tag(name: str, tenant: str, key: str) -> str:
    """The hash tag of a lane, without its braces."""
    plain = ":".join(encode(part) for part in (name, tenant, key))
    if len(plain) <= LONGEST_TAG:
        return plain
    # No encoded text contains "#", so a hash never looks like another lane's name.
    return "#" + hashlib.blake2b(plain.encode(), digest_size=32).hexdigest()


def lane_keys(root: str, name: str, tenant: str, key: str) -> LaneKeys:
    """The keys of the lane (``name``, ``tenant``, ``key``) below ``root``."""
    tagged = f"{{{tag(name, tenant, key)}}}"
    return LaneKeys(f"{root}:lane:{tagged}", f"{root}:lane:superseded:{tagged}:")
