"""The Django app of the node, and Django's admin as the node's console."""

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin.apps import SimpleAdminConfig
from django.core import checks as django_checks
from django.db.models.signals import m2m_changed, post_migrate, pre_migrate


class ThemeConfig(AppConfig):
    """The theme of the console; its own class would load it and set the site."""

    name = "unfold"


class ConsoleConfig(SimpleAdminConfig):
    """Django's admin with the theme's site; its pages are loaded by `site_urls`, when used."""

    default_site = "unfold.sites.UnfoldAdminSite"

    def ready(self) -> None:
        from django.contrib.admin.checks import check_dependencies

        django_checks.register(check_dependencies, django_checks.Tags.admin)
        django_checks.register(_check_pages, django_checks.Tags.admin)


def _check_pages(app_configs: Any, **_: Any) -> list[django_checks.CheckMessage]:
    """Django's checks of the console's pages, which are loaded first."""
    from django.contrib import admin
    from django.contrib.admin.checks import check_admin_app

    admin.autodiscover()
    return check_admin_app(app_configs)


def _recorded(*arguments: Any) -> Any:
    """What the traffic record has of messages; who asks loads Arrow, not every program."""
    from msgnode.traffic import kinds
    from msgnode.traffic.recorder import raw_url

    return kinds.kinds(raw_url(settings.RECORD["URL"]), *arguments)


class MessageNodeConfig(AppConfig):
    name = "msgnode"
    verbose_name = "Messaging node"

    def ready(self) -> None:
        from django.contrib.auth.models import User

        from policies.apps import PoliciesConfig
        from registry import api

        from . import checks  # noqa: F401  (importing it registers the checks)
        from .connectors import registration_news
        from .console import auditing, roles
        from .storage import control, sqlite_file, table_version

        # In every process: a registration may change in Celery, in the console or in a shell.
        api.on_change(registration_news.outbox(control.post))
        auditing.follow()
        if settings.RECORD["ON"]:  # a draft of policies can be tried on what was recorded
            PoliciesConfig.installed().recorded = _recorded
        api.operations.append(auditing.note_registry_operation)
        pre_migrate.connect(table_version.refuse_later, sender=self, dispatch_uid="table_version")
        pre_migrate.connect(sqlite_file.prepare, sender=self, dispatch_uid="sqlite_file")
        post_migrate.connect(roles.make, sender=self, dispatch_uid="roles")  # once, not by app
        m2m_changed.connect(roles.let_in, sender=User.groups.through, dispatch_uid="roles")
