from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Airport",
            fields=[
                (
                    "icao",
                    models.CharField(max_length=4, primary_key=True, serialize=False, verbose_name="ICAO code"),
                ),
                ("iata", models.CharField(blank=True, db_index=True, max_length=3, verbose_name="IATA code")),
                ("name", models.CharField(max_length=120)),
                ("city", models.CharField(blank=True, max_length=80)),
                ("region", models.CharField(blank=True, max_length=80)),
                ("country", models.CharField(db_index=True, max_length=2)),
                ("elevation_feet", models.FloatField()),
                ("latitude", models.FloatField()),
                ("longitude", models.FloatField()),
                ("timezone", models.CharField(max_length=50)),
                ("weather", models.JSONField(blank=True, null=True)),
                (
                    "postcard",
                    models.CharField(blank=True, help_text="Name of the file below MEDIA_ROOT.", max_length=100),
                ),
            ],
            options={
                "ordering": ["icao"],
            },
        ),
    ]
