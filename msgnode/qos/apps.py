"""The Django app of the QoS broker: its tables."""

from django.apps import AppConfig


class QosConfig(AppConfig):
    """The QoS broker as a Django app."""

    name = "msgnode.qos"
    label = "qos"
    verbose_name = "Quality of service"
