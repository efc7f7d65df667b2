"""The Django app of the domain registry and the global registry."""

from django.apps import AppConfig


class RegistryConfig(AppConfig):
    """The registry as a Django app."""

    name = "registry"
    verbose_name = "Registry"
