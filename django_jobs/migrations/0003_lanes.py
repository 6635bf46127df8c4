"""Lanes: their order comes from one sequence, and publishing finds what is older."""

from django.db import migrations, models

from django_jobs.migrations._postgres_only import PostgresOnly


class Migration(migrations.Migration):

    dependencies = [
        ('django_jobs', '0002_autovacuum'),
    ]

    operations = [
        # CACHE 1: a session that drew ahead would give an older token to a newer job.
        PostgresOnly(
            sql="CREATE SEQUENCE django_jobs_lane_token AS bigint CACHE 1",
            reverse_sql="DROP SEQUENCE django_jobs_lane_token",
        ),
        migrations.CreateModel(
            name='Counter',
            fields=[
                ('name', models.CharField(max_length=50, primary_key=True, serialize=False)),
                ('value', models.BigIntegerField(db_default=0)),
            ],
        ),
        migrations.RemoveIndex(
            model_name='job',
            name='django_jobs_job_lane',
        ),
        migrations.AddField(
            model_name='lane',
            name='supersessions',
            field=models.IntegerField(db_default=0, help_text='Runs that were superseded since one of the lane ended done.'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('lane__isnull', False), ('state__in', ['ready', 'delayed', 'running', 'suspended'])), fields=['name', 'tenant', 'lane', 'lane_token'], name='django_jobs_job_lane'),
        ),
        migrations.AddIndex(
            model_name='outbox',
            index=models.Index(condition=models.Q(('lane__isnull', False), models.Q(('outcome', None), ('outcome', 'quarantined'), _connector='OR')), fields=['name', 'tenant', 'lane', 'seq'], name='django_jobs_outbox_lane'),
        ),
    ]
