"""All tables of 1.0 at once, for a new database; one that has some of the migrations this
replaces goes on with those. They and `replaces` are deleted with 1.1."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("spark", "0001_initial"),
        ("spark", "0002_run_warning"),
        ("spark", "0003_yearly_reports"),
    ]

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ReportRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('hourly', 'hourly'), ('daily', 'daily'), ('weekly', 'weekly'), ('monthly', 'monthly'), ('yearly', 'yearly')], max_length=8)),
                ('start', models.DateTimeField(help_text='Start of the first period (UTC).')),
                ('end', models.DateTimeField(help_text='End of the last period (UTC).')),
                ('again', models.BooleanField(default=False, help_text='Roll up hours that are up to date too.', verbose_name='from the rows again')),
                ('state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], default='queued', max_length=9)),
                ('trigger', models.CharField(choices=[('schedule', 'Schedule'), ('operator', 'Operator'), ('command', 'Command')], default='operator', max_length=8)),
                ('queued_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('seen_at', models.DateTimeField(blank=True, help_text='Last sign of life.', null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('cancel_asked', models.BooleanField(default=False)),
                ('progress', models.FloatField(default=0.0)),
                ('step', models.CharField(blank=True, max_length=100)),
                ('error', models.TextField(blank=True)),
                ('warning', models.TextField(blank=True, help_text='Raw files that could not be read; their rows are missing.')),
                ('rows_read', models.PositiveBigIntegerField(default=0)),
                ('hours_rolled', models.PositiveIntegerField(default=0)),
                ('peak_memory_mb', models.PositiveIntegerField(default=0)),
                ('asked_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-queued_at',),
            },
        ),
        migrations.CreateModel(
            name='Report',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('hourly', 'hourly'), ('daily', 'daily'), ('weekly', 'weekly'), ('monthly', 'monthly'), ('yearly', 'yearly')], max_length=8)),
                ('start', models.DateTimeField()),
                ('end', models.DateTimeField()),
                ('made_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('rows', models.PositiveBigIntegerField(default=0, help_text='Rows of the record it counts.')),
                ('hours_recorded', models.PositiveIntegerField(default=0)),
                ('hours_of_period', models.PositiveIntegerField(default=0)),
                ('figures', models.JSONField(default=dict)),
                ('run', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='reports', to='spark.reportrun')),
            ],
            options={
                'ordering': ('-start', 'kind'),
            },
        ),
        migrations.AddIndex(
            model_name='reportrun',
            index=models.Index(fields=['state', 'queued_at'], name='report_run_state'),
        ),
        migrations.AddIndex(
            model_name='reportrun',
            index=models.Index(fields=['kind', 'state', '-end'], name='report_run_fresh'),
        ),
        migrations.AddConstraint(
            model_name='reportrun',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'running')), fields=('state',), name='report_run_alone'),
        ),
        migrations.AddConstraint(
            model_name='reportrun',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'queued')), fields=('kind', 'start', 'end'), name='report_run_queued_once'),
        ),
        migrations.AddIndex(
            model_name='report',
            index=models.Index(fields=['kind', '-start'], name='report_kind'),
        ),
        migrations.AddConstraint(
            model_name='report',
            constraint=models.UniqueConstraint(fields=('kind', 'start'), name='report_once'),
        ),
    ]
