"""All tables of 1.0 at once, for a new database; one that has some of the migrations this
replaces goes on with those. They and `replaces` are deleted with 1.1."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


CLASSES = {"audio": 100_000, "data": 2_000_000, "video": 2_500_000}


def make(apps, schema_editor):
    """The classes that a fresh node has."""
    model = apps.get_model("qos", "TrafficClass").objects.using(schema_editor.connection.alias)
    for name, bitrate in CLASSES.items():
        model.get_or_create(name=name, defaults={"bitrate": bitrate})


class Migration(migrations.Migration):
    replaces = [
        ("qos", "0001_initial"),
        ("qos", "0002_traffic_classes"),
        ("qos", "0003_delete_supervisorlease"),
        ("qos", "0004_round_trips"),
    ]

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='Customer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='The cspId of its applications.', max_length=128, unique=True)),
                ('quota', models.PositiveBigIntegerField(blank=True, help_text='Bytes it may use, both directions. Empty: no limit.', null=True, validators=[django.core.validators.MaxValueValidator(9223372036854775807)])),
                ('used', models.PositiveBigIntegerField(default=0, editable=False)),
                ('is_enabled', models.BooleanField(default=True, verbose_name='enabled')),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='TrafficClass',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='As applications say it in mediaType: audio, video.', max_length=16, unique=True)),
                ('bitrate', models.PositiveBigIntegerField(help_text='In bits per second, one direction.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000000)], verbose_name='bandwidth of a flow')),
            ],
            options={
                'verbose_name_plural': 'traffic classes',
                'ordering': ('bitrate',),
            },
        ),
        migrations.CreateModel(
            name='TurnSecret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sealed', models.TextField(editable=False)),
                ('made_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'verbose_name': 'TURN secret',
                'ordering': ('-id',),
            },
        ),
        migrations.CreateModel(
            name='TurnServer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='For operators.', max_length=64, unique=True)),
                ('urls', models.TextField(help_text='What clients are given, one a line: turn:turn.example.org:3478?transport=udp', verbose_name='URLs')),
                ('capacity', models.PositiveBigIntegerField(help_text='Bandwidth that may be booked on it, in bits per second.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000000)])),
                ('command_line', models.CharField(blank=True, help_text='cli-ip:cli-port of the process, as the node reaches it. Without one the node cannot end what runs there.', max_length=255, verbose_name='command line interface')),
                ('sealed_password', models.TextField(blank=True, editable=False)),
                ('is_enabled', models.BooleanField(default=True, verbose_name='enabled')),
                ('state', models.CharField(choices=[('unknown', 'Unknown'), ('up', 'Up'), ('down', 'Down')], default='unknown', editable=False, max_length=8)),
                ('fault', models.CharField(blank=True, editable=False, max_length=255)),
                ('polled_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('sessions', models.PositiveIntegerField(default=0, editable=False)),
                ('traffic_class', models.ForeignKey(blank=True, help_text='Empty: it carries all classes.', null=True, on_delete=django.db.models.deletion.PROTECT, to='qos.trafficclass')),
            ],
            options={
                'verbose_name': 'TURN server',
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Reservation',
            fields=[
                ('id', models.CharField(editable=False, max_length=16, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('held', 'held, not used yet'), ('active', 'Active'), ('ended', 'Ended')], default='held', max_length=8)),
                ('reason', models.CharField(blank=True, choices=[('released', 'Released'), ('expired', 'Expired'), ('unused', 'not used in time'), ('exceeded', "the customer's quota is used up"), ('lost', 'its TURN server is down'), ('closed', 'its session has ended'), ('refused', 'refused by the broker'), ('operator', 'ended by an operator')], max_length=10)),
                ('traffic_class', models.CharField(max_length=16)),
                ('bitrate', models.PositiveBigIntegerField()),
                ('session_id', models.UUIDField()),
                ('runtime_url', models.CharField(max_length=600)),
                ('issuer', models.CharField(blank=True, max_length=255)),
                ('subject', models.CharField(blank=True, max_length=255)),
                ('client_name', models.CharField(blank=True, max_length=128)),
                ('about', models.CharField(blank=True, max_length=600, verbose_name='session of the application')),
                ('foreign_id', models.CharField(blank=True, editable=False, max_length=128)),
                ('users', models.JSONField(default=list, editable=False)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('cut_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('told_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('received', models.PositiveBigIntegerField(default=0)),
                ('sent', models.PositiveBigIntegerField(default=0)),
                ('is_incomplete', models.BooleanField(default=False, verbose_name='incomplete')),
                ('customer', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='qos.customer')),
                ('server', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='qos.turnserver')),
            ],
            options={
                'ordering': ('-created_at',),
            },
        ),
        migrations.CreateModel(
            name='Usage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('received', models.PositiveBigIntegerField(default=0)),
                ('sent', models.PositiveBigIntegerField(default=0)),
                ('is_incomplete', models.BooleanField(default=False, verbose_name='incomplete')),
                ('customer', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='days', to='qos.customer')),
            ],
            options={
                'verbose_name_plural': 'usage',
                'ordering': ('-day',),
            },
        ),
        migrations.CreateModel(
            name='RelayAllocation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(editable=False, max_length=32, unique=True)),
                ('user', models.CharField(max_length=64)),
                ('number', models.CharField(max_length=32)),
                ('received', models.PositiveBigIntegerField(default=0)),
                ('sent', models.PositiveBigIntegerField(default=0)),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('is_incomplete', models.BooleanField(default=False, verbose_name='incomplete')),
                ('reservation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='allocations', to='qos.reservation')),
            ],
            options={
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['user', 'number'], name='allocation_of_user')],
            },
        ),
        migrations.CreateModel(
            name='RoundTrip',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('network', models.CharField(help_text='As applications say it in `near`.', max_length=64, verbose_name='access network')),
                ('milliseconds', models.FloatField(validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(60000)], verbose_name='round trip (ms)')),
                ('server', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='qos.turnserver', verbose_name='TURN server')),
            ],
            options={
                'verbose_name': 'round trip',
                'ordering': ('network', 'server'),
                'constraints': [models.UniqueConstraint(fields=('network', 'server'), name='round_trip_once')],
            },
        ),
        migrations.AddIndex(
            model_name='reservation',
            index=models.Index(fields=['-created_at'], name='reservation_created'),
        ),
        migrations.AddIndex(
            model_name='reservation',
            index=models.Index(condition=models.Q(('state', 'ended'), _negated=True), fields=['expires_at'], name='reservation_open'),
        ),
        migrations.AddIndex(
            model_name='reservation',
            index=models.Index(fields=['session_id'], name='reservation_session'),
        ),
        migrations.AddIndex(
            model_name='reservation',
            index=models.Index(fields=['subject', 'issuer'], name='reservation_subject'),
        ),
        migrations.AddIndex(
            model_name='reservation',
            index=models.Index(condition=models.Q(('cut_at', None), ('state', 'ended')), fields=['ended_at'], name='reservation_to_cut'),
        ),
        migrations.AddIndex(
            model_name='reservation',
            index=models.Index(condition=models.Q(('state', 'ended'), ('told_at', None)), fields=['ended_at'], name='reservation_to_tell'),
        ),
        migrations.AddConstraint(
            model_name='usage',
            constraint=models.UniqueConstraint(fields=('customer', 'day'), name='usage_once_a_day'),
        ),
        migrations.RunPython(make, migrations.RunPython.noop),
    ]
