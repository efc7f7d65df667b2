"""The Django app of the node."""

from django.apps import AppConfig


class MessageNodeConfig(AppConfig):
    name = "msgnode"
    verbose_name = "Messaging node"
