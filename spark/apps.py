"""The Django app of the reports."""

from django.apps import AppConfig


class SparkConfig(AppConfig):
    name = "spark"
    verbose_name = "Traffic reports"
