"""The Django app of the reports."""

from django.apps import AppConfig


class SparkConfig(AppConfig):
    """The reports as a Django app."""

    name = "spark"
    verbose_name = "Traffic reports"
