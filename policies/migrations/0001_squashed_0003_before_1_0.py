"""All tables of 1.0 at once, for a new database; one that has some of the migrations this
replaces goes on with those. They and `replaces` are deleted with 1.1."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("policies", "0001_initial"),
        ("policies", "0002_what_was_known"),
        ("policies", "0003_decision_session"),
    ]

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='NamedList',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=64, unique=True)),
                ('note', models.CharField(blank=True, max_length=255)),
                ('members', models.TextField(blank=True, help_text='One a line.')),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='PolicyTest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100, unique=True)),
                ('case', models.JSONField(help_text='For example {"msg": {"type": "create"}, "user": "bob@a.com", "expect": "deny"}.')),
                ('is_active', models.BooleanField(default=True)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='RuleHits',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('path', models.CharField(max_length=255, unique=True)),
                ('hits', models.PositiveBigIntegerField(default=0)),
                ('last_hit', models.DateTimeField()),
            ],
            options={
                'verbose_name_plural': 'rule hits',
                'ordering': ('-hits',),
            },
        ),
        migrations.CreateModel(
            name='DecisionEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_index=True)),
                ('direction', models.CharField(max_length=3)),
                ('effect', models.CharField(max_length=13)),
                ('passes', models.BooleanField()),
                ('shadow', models.CharField(blank=True, max_length=255)),
                ('path', models.CharField(blank=True, max_length=255, verbose_name='decided by')),
                ('version', models.PositiveIntegerField()),
                ('type', models.CharField(max_length=16)),
                ('sender', models.CharField(max_length=600, verbose_name='from')),
                ('to', models.CharField(max_length=600)),
                ('username', models.CharField(blank=True, max_length=255)),
                ('session', models.CharField(blank=True, max_length=64)),
                ('message', models.TextField(blank=True)),
                ('errors', models.TextField(blank=True)),
                ('microseconds', models.FloatField(default=0)),
                ('facts', models.JSONField(default=dict, help_text='What was known beside the message: sender, counters, look-ups.')),
            ],
            options={
                'verbose_name_plural': 'decision log',
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['effect', '-id'], name='decision_effect'), models.Index(fields=['path', '-id'], name='decision_path'), models.Index(fields=['session', '-id'], name='decision_session')],
            },
        ),
        migrations.CreateModel(
            name='PolicySet',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=100, validators=[django.core.validators.RegexValidator('^[^/\\s]\\S*$', 'No spaces, and no slash in front.')], verbose_name='id')),
                ('note', models.CharField(blank=True, max_length=255)),
                ('priority', models.IntegerField(default=0, help_text='The lower one is asked first.')),
                ('target', models.JSONField(blank=True, default=dict, help_text='{} applies to everything.')),
                ('obligations', models.JSONField(blank=True, default=dict)),
                ('advice', models.JSONField(blank=True, default=dict)),
                ('mode', models.CharField(choices=[('off', 'Off'), ('shadow', 'shadow: report only'), ('enforce', 'Enforce')], default='off', max_length=8)),
                ('algorithm', models.CharField(choices=[('blockOverrides', 'blockOverrides'), ('allowOverrides', 'allowOverrides'), ('firstApplicable', 'firstApplicable'), ('denyUnlessPermit', 'denyUnlessPermit'), ('permitUnlessDeny', 'permitUnlessDeny')], default='blockOverrides', max_length=20)),
                ('parent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='sets', to='policies.policyset')),
            ],
            options={
                'ordering': ('priority', 'id'),
            },
        ),
        migrations.CreateModel(
            name='Policy',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=100, validators=[django.core.validators.RegexValidator('^[^/\\s]\\S*$', 'No spaces, and no slash in front.')], verbose_name='id')),
                ('note', models.CharField(blank=True, max_length=255)),
                ('priority', models.IntegerField(default=0, help_text='The lower one is asked first.')),
                ('target', models.JSONField(blank=True, default=dict, help_text='{} applies to everything.')),
                ('obligations', models.JSONField(blank=True, default=dict)),
                ('advice', models.JSONField(blank=True, default=dict)),
                ('algorithm', models.CharField(choices=[('blockOverrides', 'blockOverrides'), ('allowOverrides', 'allowOverrides'), ('firstApplicable', 'firstApplicable'), ('denyUnlessPermit', 'denyUnlessPermit'), ('permitUnlessDeny', 'permitUnlessDeny')], default='blockOverrides', max_length=20)),
                ('policy_set', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='policies', to='policies.policyset')),
            ],
            options={
                'verbose_name_plural': 'policies',
                'ordering': ('priority', 'id'),
            },
        ),
        migrations.CreateModel(
            name='Rule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=100, validators=[django.core.validators.RegexValidator('^[^/\\s]\\S*$', 'No spaces, and no slash in front.')], verbose_name='id')),
                ('note', models.CharField(blank=True, max_length=255)),
                ('priority', models.IntegerField(default=0, help_text='The lower one is asked first.')),
                ('target', models.JSONField(blank=True, default=dict, help_text='{} applies to everything.')),
                ('obligations', models.JSONField(blank=True, default=dict)),
                ('advice', models.JSONField(blank=True, default=dict)),
                ('effect', models.CharField(choices=[('permit', 'Permit'), ('deny', 'Deny')], default='deny', max_length=6)),
                ('condition', models.JSONField(blank=True, default=dict)),
                ('policy', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rules', to='policies.policy')),
            ],
            options={
                'ordering': ('priority', 'id'),
            },
        ),
        migrations.CreateModel(
            name='Version',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField(unique=True)),
                ('document', models.JSONField()),
                ('lists', models.JSONField(default=dict)),
                ('note', models.CharField(blank=True, max_length=255)),
                ('published_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('author', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-number',),
            },
        ),
        migrations.AddConstraint(
            model_name='policyset',
            constraint=models.UniqueConstraint(condition=models.Q(('parent', None)), fields=('key',), name='policy_set_key'),
        ),
        migrations.AddConstraint(
            model_name='policyset',
            constraint=models.UniqueConstraint(fields=('parent', 'key'), name='policy_set_inner_key'),
        ),
        migrations.AddConstraint(
            model_name='policy',
            constraint=models.UniqueConstraint(fields=('policy_set', 'key'), name='policy_key'),
        ),
        migrations.AddConstraint(
            model_name='rule',
            constraint=models.UniqueConstraint(fields=('policy', 'key'), name='rule_key'),
        ),
    ]
