from django.db import migrations

CLASSES = {"audio": 100_000, "data": 2_000_000, "video": 2_500_000}


def make(apps, schema_editor):
    """The classes that a fresh node has; what an operator has changed stays."""
    model = apps.get_model("qos", "TrafficClass").objects.using(schema_editor.connection.alias)
    for name, bitrate in CLASSES.items():
        model.get_or_create(name=name, defaults={"bitrate": bitrate})


class Migration(migrations.Migration):
    dependencies = [("qos", "0001_initial")]
    operations = [migrations.RunPython(make, migrations.RunPython.noop)]
