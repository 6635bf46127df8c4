"""What a run ended as. The executor builds one of these before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Failure:
    """What an attempt died of, as it is stored: already redacted and cut to size."""

    error_class: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The body returned. ``result`` is its JSON text, or ``None`` for nothing.

    ``stored``: a transaction of the body's own has stored it already.
    """

    result: str | None = None
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Retried:
    """The attempt failed and another follows after ``delay`` seconds."""

    failure: Failure
    delay: float


@dataclass(frozen=True, slots=True)
class Parked:
    """The run waits for ``delay`` seconds; the attempt is given back."""

    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class Shed:
    """The run is handed back as it was claimed; the attempt is given back."""

    reason: str


@dataclass(frozen=True, slots=True)
class Buried:
    """The job is given up. ``keep`` says whether it stays as a dead letter or ends ``failed``."""

    failure: Failure
    reason: str
    keep: bool = True


@dataclass(frozen=True, slots=True)
class Stopped:
    """The job was cancelled while it ran; the row says so already."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """A newer job of its lane, ``by``, ended this one while it ran; the row says so already."""

    by: UUID


@dataclass(frozen=True, slots=True)
class Lost:
    """The row is no longer ours; nothing may be written."""


Outcome = Succeeded | Retried | Parked | Shed | Buried | Stopped | Superseded | Lost
