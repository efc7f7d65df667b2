"""The Django app of the node."""

from django.apps import AppConfig


class MessageNodeConfig(AppConfig):
    name = "msgnode"
    verbose_name = "Messaging node"

    def ready(self) -> None:
        from registry import api

        from . import checks  # noqa: F401  (importing it registers the checks)
        from .connectors import registration_news
        from .workers import control

        # In every process: a registration may change in Celery, in the console or in a shell.
        api.on_change(registration_news.outbox(control.post))
