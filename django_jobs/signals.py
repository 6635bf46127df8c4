"""Signals, sent with ``send_robust`` so that a receiver's error never touches a job.

Of a job, ``sender`` is its name (``str``):

- ``job_started(sender, run)``: a body is about to run. ``run`` is a ``django_jobs.models.Run``.
- ``job_ended(sender, run, outcome, seconds)``: the run has ended and its outcome is stored.
  ``seconds`` is how long the body took, without what it waited for a thread or its outcome for
  the database.
- ``job_lapsed(sender, job_id, state)``: a worker was lost; the job is ``ready`` again or ``dead``.
- ``job_superseded(sender, job_id, superseded_by, ran)``: a newer job of its lane was published.
  ``ran``: its body was running and is told to stop.

Of a queue, ``sender`` is its name:

- ``queue_overflowing(sender, depth, backlog, seconds)``: it has overflowed for so long. Sent every
  ``OVERFLOW_ALERT`` seconds by each process that relays. ``backlog`` is counted up to 10,000.
"""

from __future__ import annotations

from django.dispatch import Signal

job_started = Signal()
job_ended = Signal()
job_lapsed = Signal()
job_superseded = Signal()
queue_overflowing = Signal()
