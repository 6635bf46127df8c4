"""Jobs, outbox, schedules and backfills in Django's admin: to look at, and to give orders to.

A project that shows each operator one tenant only registers a subclass instead::

    admin.site.unregister(Job)

    @admin.register(Job)
    class OurJobs(JobAdmin):
        def tenant_of(self, request):
            return request.user.company.slug
"""

from django.contrib import admin

from django_jobs.admin.backfills import BackfillAdmin
from django_jobs.admin.jobs import JobAdmin
from django_jobs.admin.operator import OperatorAdmin
from django_jobs.admin.outbox import OutboxAdmin
from django_jobs.admin.schedules import ScheduleAdmin
from django_jobs.models import Backfill, Job, Outbox, Schedule

__all__ = ["BackfillAdmin", "JobAdmin", "OperatorAdmin", "OutboxAdmin", "ScheduleAdmin"]

admin.site.register(Backfill, BackfillAdmin)
admin.site.register(Job, JobAdmin)
admin.site.register(Outbox, OutboxAdmin)
admin.site.register(Schedule, ScheduleAdmin)
