from django.apps import AppConfig


class AirportsConfig(AppConfig):
    name = "airports"
