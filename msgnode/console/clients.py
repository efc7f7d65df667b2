"""OAuth clients in the console: the programs that log users in at the embedded provider."""

from __future__ import annotations

from typing import Any

from django import forms
from django.apps import apps
from django.contrib import admin, messages
from django.http import HttpRequest
from oauth2_provider.models import Application, get_application_model
from unfold.decorators import display

from msgnode.identity.ports import ISSUERS_CHANGED
from msgnode.identity.provider.clients import OVERLAP, OWN_PAGE, rotate_secret
from msgnode.identity.provider.grants import CONNECTOR
from msgnode.storage.control import post

from .new_secret import NewSecretAdmin

# The toolkit registers its own classes, which show tokens; users' tokens are ended, not looked at.
for _model in list(admin.site._registry):
    if _model._meta.app_label == "oauth2_provider":
        admin.site.unregister(_model)
apps.get_app_config("oauth2_provider").verbose_name = "OpenID provider"


class ClientForm(forms.ModelForm):
    """The code flow only; what can be chosen is what the provider allows."""

    class Meta:
        model = Application
        fields = (
            "name", "client_type", "redirect_uris", "post_logout_redirect_uris",
            "allowed_origins", "skip_authorization",
        )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        self.instance.authorization_grant_type = "authorization-code"
        self.instance.algorithm = "RS256"
        self.instance.hash_client_secret = True
        return super().clean() or {}


@admin.register(get_application_model())
class ClientAdmin(NewSecretAdmin):
    overlap = OVERLAP
    form = ClientForm
    acts_on = ("name", "client_type", "client_secret")
    list_display = ("name", "client_id", "client_type", "asks_users", "updated")
    ordering = ("name",)
    search_fields = ("client_id",)
    search_help_text = "Client id (its beginning)"
    readonly_fields = ("client_id",)
    fields = (
        "name", "client_id", "client_type", "redirect_uris", "post_logout_redirect_uris",
        "allowed_origins", "skip_authorization",
    )  # fmt: skip

    def publish(self) -> None:
        """Workers take tokens of the clients they know of."""
        post(ISSUERS_CHANGED)

    @display(description="asks users", boolean=True)
    def asks_users(self, client: Application) -> bool:
        return not client.skip_authorization

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The node's own clients follow its settings."""
        return super().has_change_permission(request, obj) and not _is_own(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and not _is_own(obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        secret = obj.client_secret  # hashed when it is saved
        if not change and obj.client_type == Application.CLIENT_PUBLIC:
            obj.client_secret = secret = ""
        super().save_model(request, obj, form, change)
        if not change and secret:
            _show(request, obj, secret)

    def has_rotate_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """A public client has no secret; without a client, whether there may be a button at all."""
        client = self.get_object(request, object_id) if object_id else None
        is_public = client is not None and client.client_type == Application.CLIENT_PUBLIC
        return self.has_change_permission(request, client) and not is_public

    def show_new_secret(self, request: HttpRequest, row: Any) -> None:
        """Give a client a new secret, and show it."""
        _show(request, row, rotate_secret(row))


def _show(request: HttpRequest, client: Any, secret: str) -> None:
    messages.success(request, f"Client {client.client_id}, secret {secret} (shown only this once).")


def _is_own(client: Any) -> bool:
    return client is not None and client.client_id in (OWN_PAGE, CONNECTOR)
