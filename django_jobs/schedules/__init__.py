"""Schedules as they are declared: ``@schedule``, when they are due, the registry of all of them."""

from __future__ import annotations

from django_jobs.schedules.cadence import Cadence, Cron, Every
from django_jobs.schedules.catching_up import COUNTED, Due, Passed, due
from django_jobs.schedules.declaring import schedule
from django_jobs.schedules.registered import timetable, timetables
from django_jobs.schedules.timetable import Timetable, stamp, tenant_text

__all__ = [
    "COUNTED",
    "Cadence",
    "Cron",
    "Due",
    "Every",
    "Passed",
    "Timetable",
    "due",
    "schedule",
    "stamp",
    "tenant_text",
    "timetable",
    "timetables",
]
