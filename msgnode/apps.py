"""The Django app of the node."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class MessageNodeConfig(AppConfig):
    name = "msgnode"
    verbose_name = "Messaging node"

    def ready(self) -> None:
        from registry import api

        from . import checks  # noqa: F401  (importing it registers the checks)
        from .connectors import registration_news
        from .console import auditing, roles
        from .console.recorded import offer_record
        from .storage import control, sqlite_file, table_version

        # In every process: a registration may change in Celery, in the console or in a shell.
        api.on_change(registration_news.outbox(control.post))
        auditing.follow()
        offer_record()
        api.operations.append(auditing.note_registry_operation)
        pre_migrate.connect(table_version.refuse_later, sender=self, dispatch_uid="table_version")
        pre_migrate.connect(sqlite_file.prepare, sender=self, dispatch_uid="sqlite_file")
        post_migrate.connect(roles.make, sender=self, dispatch_uid="roles")  # once, not by app
