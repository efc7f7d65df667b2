"""The Django app of the node."""

from django.apps import AppConfig


class MessageNodeConfig(AppConfig):
    name = "msgnode"
    verbose_name = "Messaging node"

    def ready(self) -> None:
        from . import checks  # noqa: F401  (importing it registers the checks)
