"""What ends a run, raised in its body or by it."""

from __future__ import annotations

from collections.abc import Sequence

from django_jobs.errors.asking import JobsError


class ResultError(JobsError, ValueError):
    """A return value or progress value cannot be stored. Terminal: a retry would not mend it."""


class Terminal(JobsError):
    """Raise this (or a subclass) in a body when trying again cannot help."""


class FenceRefused(Terminal):
    """``current_job().atomic()`` was called where its fence could not be the last statement."""


class StepError(Terminal):
    """A step is called in a way that no further attempt can mend; the message says how to."""


class StepNameRefused(StepError):
    """The name of a step is no short, plain text."""


class StepDuplicate(StepError):
    """Two steps of one run have one name, so that one would get the other's result."""

    def __init__(self, job: str, name: str) -> None:
        super().__init__(
            f"Job {job}: step {name!r} is called twice in one attempt. Give each call a name of "
            f'its own; in a loop: step.run(f"{name} {{item.pk}}", ...).'
        )


class StepKindChanged(StepError):
    """What is stored under a step's name is a step of another kind."""

    def __init__(self, job: str, name: str, stored: str, called: str) -> None:
        super().__init__(
            f"Job {job}: step {name!r} is stored as {stored!r} and now called as {called!r}. Give "
            "the new step a new name; runs that are under way keep the old one's result."
        )


class StepRefused(StepError):
    """A step is called where nothing can be remembered."""


class StepFailed(Terminal):
    """A stored failure, replayed; its own class is not at hand any more."""


class WaitTimeout(Terminal):
    """What a step waited for did not come in time."""


class BackfillNotFound(JobsError, LookupError):
    """No backfill is declared under this name, or none of its passes fits what was asked."""


class BackfillRefused(Terminal):
    """A backfill may not do this now. ``gate`` is one word that says which rule forbids it.

    ``environment``, ``requires``, ``depends_on``, ``applied``, ``running``, ``state``.
    """

    def __init__(self, gate: str, message: str, job_id: object = None) -> None:
        self.gate, self.job_id = gate, job_id
        super().__init__(message)


class BackfillStalled(Terminal):
    """``count`` is not 0 after a sweep, and sweeping again did not lower it."""


class RetryAfter(JobsError):
    """Raise this in a body to be tried again after ``seconds``. The attempt counts."""

    def __init__(self, seconds: float, message: str = "") -> None:
        self.seconds = seconds
        super().__init__(message or f"asked to be retried after {seconds} s")


class JobTimeout(JobsError, TimeoutError):
    """The attempt ran longer than its ``timeout``."""


class StepTimeout(JobTimeout):
    """One step ran longer than its ``timeout``."""


class DeadlinePassed(JobTimeout):
    """The job's ``deadline`` has passed. Terminal: it has passed for every further attempt."""


class Interrupted(BaseException):
    """The run must stop now; what it does from here on is not stored."""


class Suspended(Interrupted):
    """A step sleeps or waits: the attempt ends here, and the run goes on in ``delay`` seconds."""

    def __init__(self, delay: float, reason: str) -> None:
        self.delay, self.reason = delay, reason
        super().__init__(f"{reason}, for {delay:.3f} s at most")


class VersionUnknown(Interrupted):
    """The run began under code that this release does not understand, and waits for its like."""

    def __init__(self, job: str, began: Sequence[str], known: Sequence[str]) -> None:
        super().__init__(
            f"The steps of this run were stored by version {', '.join(map(repr, began))} of job "
            f"{job}; this release understands {', '.join(map(repr, known))}. Deploy code that does "
            "(version=(new, old)); or cancel the job and retry it from its first step."
        )


class LeaseLost(Interrupted):
    """The row no longer carries this run's lease token."""


class Superseded(LeaseLost):
    """Newer work of the job's lane took its place."""
