"""The row that names this installation, so that no two of them share the keys of their lanes."""

import uuid
from typing import Any

from django.db import migrations, models


def name_this_installation(apps: Any, schema_editor: Any) -> None:
    # Not left to the first use alone: that may be inside a transaction which is rolled back.
    rows = apps.get_model("django_jobs", "Deployment").objects.using(schema_editor.connection.alias)
    rows.get_or_create(id=1)


class Migration(migrations.Migration):
    dependencies = [("django_jobs", "0007_stage_function")]

    operations = [
        migrations.CreateModel(
            name="Deployment",
            fields=[
                (
                    "id",
                    models.SmallIntegerField(
                        db_default=1, default=1, primary_key=True, serialize=False
                    ),
                ),
                ("key", models.UUIDField(default=uuid.uuid4)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("id", 1)), name="django_jobs_one_deployment"
                    )
                ],
            },
        ),
        migrations.RunPython(name_this_installation, migrations.RunPython.noop),
    ]
