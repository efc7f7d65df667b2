"""All tables of 1.0 at once, for a new database; one that has some of the migrations this
replaces goes on with those. They and `replaces` are deleted with 1.1."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("registry", "0001_initial"),
        ("registry", "0002_entry_owner"),
        ("registry", "0003_object_p2p_handler"),
    ]

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='GlobalRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('guid', models.CharField(max_length=43, verbose_name='GUID')),
                ('jwt', models.TextField(verbose_name='JWT')),
                ('public_key', models.CharField(max_length=255)),
                ('user_ids', models.JSONField(default=list, help_text='User ids as the record lists them.')),
                ('last_update', models.DateTimeField()),
                ('timeout', models.DateTimeField()),
                ('is_active', models.BooleanField(default=True)),
                ('is_revoked', models.BooleanField(default=False)),
                ('first_stored_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('stored_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['timeout'], name='global_record_timeout')],
                'constraints': [models.UniqueConstraint(fields=('guid',), name='global_record_once')],
            },
        ),
        migrations.CreateModel(
            name='Runtime',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('url', models.CharField(max_length=600)),
                ('first_seen', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ('-id',),
                'constraints': [models.UniqueConstraint(fields=('url',), name='registry_runtime_once')],
            },
        ),
        migrations.CreateModel(
            name='StatusChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=10)),
                ('url', models.CharField(max_length=600, verbose_name='URL')),
                ('before', models.CharField(blank=True, max_length=32)),
                ('after', models.CharField(max_length=32)),
                ('cause', models.CharField(max_length=16)),
                ('at', models.DateTimeField()),
            ],
            options={
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['url', '-id'], name='change_url'), models.Index(fields=['at'], name='change_at')],
            },
        ),
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('user_id', models.CharField(max_length=600)),
                ('idp_identifier', models.CharField(help_text='Last part of the user id, usually an e-mail address.', max_length=600)),
                ('first_seen', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['idp_identifier'], name='registry_user_email')],
                'constraints': [models.UniqueConstraint(fields=('user_id',), name='registry_user_once')],
            },
        ),
        migrations.CreateModel(
            name='DataObject',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('url', models.CharField(max_length=600, verbose_name='URL')),
                ('status', models.CharField(max_length=32)),
                ('expires', models.PositiveIntegerField(help_text='Seconds it lives without a sign of life.')),
                ('resources', models.JSONField(default=list)),
                ('data_schemes', models.JSONField(default=list)),
                ('owner', models.CharField(blank=True, default='', editable=False, help_text='Mark of the session or subject that registered it.', max_length=80)),
                ('p2p_requester', models.CharField(blank=True, max_length=2048, null=True)),
                ('p2p_handler', models.CharField(blank=True, max_length=2048, null=True)),
                ('started_at', models.DateTimeField()),
                ('modified_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField(editable=False, null=True)),
                ('ended_at', models.DateTimeField(editable=False, null=True)),
                ('news_at', models.DateTimeField(editable=False, null=True)),
                ('name', models.CharField(max_length=600)),
                ('schema', models.CharField(max_length=2048)),
                ('reporter', models.CharField(max_length=600)),
                ('runtime', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='data_objects', to='registry.runtime', to_field='url')),
            ],
            options={
                'ordering': ('-id',),
                'abstract': False,
                'indexes': [models.Index(fields=['name'], name='object_name'), models.Index(fields=['reporter'], name='object_reporter'), models.Index(fields=['runtime'], name='object_runtime'), models.Index(fields=['expires_at'], name='object_expires'), models.Index(fields=['status', 'ended_at'], name='object_ended'), models.Index(fields=['news_at'], name='object_news')],
                'constraints': [models.UniqueConstraint(fields=('url',), name='object_once')],
            },
        ),
        migrations.CreateModel(
            name='Hyperty',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('url', models.CharField(max_length=600, verbose_name='URL')),
                ('status', models.CharField(max_length=32)),
                ('expires', models.PositiveIntegerField(help_text='Seconds it lives without a sign of life.')),
                ('resources', models.JSONField(default=list)),
                ('data_schemes', models.JSONField(default=list)),
                ('owner', models.CharField(blank=True, default='', editable=False, help_text='Mark of the session or subject that registered it.', max_length=80)),
                ('p2p_requester', models.CharField(blank=True, max_length=2048, null=True)),
                ('p2p_handler', models.CharField(blank=True, max_length=2048, null=True)),
                ('started_at', models.DateTimeField()),
                ('modified_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField(editable=False, null=True)),
                ('ended_at', models.DateTimeField(editable=False, null=True)),
                ('news_at', models.DateTimeField(editable=False, null=True)),
                ('descriptor', models.CharField(max_length=2048)),
                ('guid', models.CharField(blank=True, max_length=255, null=True, verbose_name='GUID')),
                ('runtime', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='hyperties', to='registry.runtime', to_field='url')),
                ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='hyperties', to='registry.user', to_field='user_id')),
            ],
            options={
                'verbose_name_plural': 'hyperties',
                'ordering': ('-id',),
                'abstract': False,
                'indexes': [models.Index(fields=['user'], name='hyperty_user'), models.Index(fields=['runtime'], name='hyperty_runtime'), models.Index(fields=['guid'], name='hyperty_guid'), models.Index(fields=['expires_at'], name='hyperty_expires'), models.Index(fields=['status', 'ended_at'], name='hyperty_ended'), models.Index(fields=['news_at'], name='hyperty_news')],
                'constraints': [models.UniqueConstraint(fields=('url',), name='hyperty_once')],
            },
        ),
    ]
