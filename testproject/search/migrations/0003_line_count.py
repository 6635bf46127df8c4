from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("search", "0002_interruption")]

    operations = [
        migrations.AddField("document", "line_count", models.IntegerField(null=True, blank=True)),
    ]
