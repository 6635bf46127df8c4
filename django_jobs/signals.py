"""Signals, sent with ``send_robust`` so that a receiver's error never touches a job.

Of a job, ``sender`` is its name (``str``):

- ``job_started(sender, run)``: a body is about to run. ``run`` is a ``django_jobs.models.Run``.
- ``job_ended(sender, run, outcome, seconds)``: the run has ended and its outcome is stored.
- ``job_lapsed(sender, job_id, state)``: a worker was lost; the job is ``ready`` again or ``dead``.

Of a queue, ``sender`` is its name:

- ``queue_overflowing(sender, depth, backlog, seconds)``: it has overflowed for so long. Sent every
  ``OVERFLOW_ALERT`` seconds by each process that relays. ``backlog`` is counted up to 10,000.
"""

from __future__ import annotations

from django.dispatch import Signal

job_started = Signal()
job_ended = Signal()
job_lapsed = Signal()
queue_overflowing = Signal()
