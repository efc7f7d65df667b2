"""OAuth clients in the console: the programs that log users in at the embedded provider."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from oauth2_provider.models import Application, get_application_model
from unfold.decorators import action, display

from msgnode.identity.ports import ISSUERS_CHANGED
from msgnode.identity.provider.clients import OVERLAP, OWN_PAGE, rotate_secret
from msgnode.identity.provider.grants import CONNECTOR
from msgnode.storage.control import post

from .acted_meanwhile import is_as_shown
from .confirm import ask
from .lists import AuditedAdmin

# The toolkit registers its own classes, which show tokens; users' tokens are ended, not looked at.
for _model in list(admin.site._registry):
    if _model._meta.app_label == "oauth2_provider":
        admin.site.unregister(_model)


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
class ClientAdmin(AuditedAdmin):
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
    actions_detail = ("rotate",)

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

    @action(description="New secret", url_path="rotate", permissions=["rotate"], icon="autorenew")
    @transaction.atomic  # the row stays locked from the look at it until it has its new secret
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks first; the present secret works for OVERLAP longer, the one before it no more."""
        client = self.get_object(request, object_id)
        if client is None:
            raise Http404
        if request.method == "POST" and is_as_shown(self, request, client):
            _show(request, client, rotate_secret(client))
            return redirect(reverse("admin:oauth2_provider_application_change", args=[client.pk]))
        hours = round(OVERLAP.total_seconds() / 3600)
        warning = f"The present secret stays valid for {hours} hours more, one before it does not."
        return ask(
            self,
            request,
            get_application_model().objects.filter(pk=client.pk),
            action="rotate",
            title="Create a new secret",
            warning=warning,
            form=forms.Form(),
        )


def _show(request: HttpRequest, client: Any, secret: str) -> None:
    messages.success(request, f"Client {client.client_id}, secret {secret} (shown only this once).")


def _is_own(client: Any) -> bool:
    return client is not None and client.client_id in (OWN_PAGE, CONNECTOR)
