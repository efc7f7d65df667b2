"""The policy engine as a Django app."""

from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    """Label `policies`."""

    name = "policies"
    verbose_name = "Policies"
    default_auto_field = "django.db.models.BigAutoField"
