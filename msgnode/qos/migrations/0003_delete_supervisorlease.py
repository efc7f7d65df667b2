from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("qos", "0002_traffic_classes")]
    operations = [migrations.DeleteModel(name="SupervisorLease")]
