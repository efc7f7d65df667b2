"""Whose identities the node believes, and whose no longer: issuers, revocations, address owners."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from unfold.admin import TabularInline
from unfold.decorators import display
from unfold.widgets import UnfoldAdminPasswordWidget

from msgnode.identity.encryption import encrypt
from msgnode.identity.http import url_fault
from msgnode.identity.issuer_store import lines
from msgnode.identity.issuers import ALGORITHMS
from msgnode.identity.jwks import read_key_set
from msgnode.identity.ports import ISSUERS_CHANGED
from msgnode.identity.provider.revocation import end_browser_sessions
from msgnode.identity.revocation_list import revoke
from msgnode.models import AddressOwner, Issuer, Revocation, RoleOfGroup
from msgnode.storage.control import post

from . import roles
from .audit import fields_of, note
from .lists import AuditedAdmin, NeverEdited

_EVERY_TENANT = re.compile(
    r"https://(login\.microsoftonline\.|sts\.windows\.)[^/]+/(common|organizations|consumers)(/|$)",
    re.IGNORECASE,
)
"""What Entra ID takes at a log-in in the place of a directory's id, and writes into no token."""
_KEEP = "If you leave this empty, the secret stays unchanged."


class IssuerForm(forms.ModelForm):
    secret = forms.CharField(
        label="Client secret",
        required=False,
        strip=False,
        help_text="For introspection, and for log-ins of operators. It is stored encrypted and "
        f"never shown. {_KEEP}",
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
    )

    class Meta:
        model = Issuer
        fields = (
            "name", "url", "is_enabled", "aliases", "domains", "audiences", "name_claim",
            "algorithms", "jwks_url", "jwks", "introspection_url", "client_id",
            "logs_in_operators", "groups_claim",
        )  # fmt: skip

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"].strip()
        base, is_discovery, _ = url.partition("/.well-known/")
        if is_discovery:
            raise forms.ValidationError(
                "This is the address of a discovery document. The issuer is what that document "
                f"says under issuer, usually {base}"
            )
        if "{" in url or "}" in url:
            raise forms.ValidationError(
                "The braces stand for something. Enter the issuer as it is in the tokens: for "
                "Entra ID with the directory's (tenant's) id in their place."
            )
        if _EVERY_TENANT.match(url):
            raise forms.ValidationError(
                "No token is of this issuer: each says the id of its own directory (tenant). "
                "Enter one issuer for each, such as https://login.microsoftonline.com/<id>/v2.0"
            )
        return url

    def clean_algorithms(self) -> str:
        named = lines(self.cleaned_data["algorithms"])
        if not named or (wrong := [each for each in named if each not in ALGORITHMS]):
            raise forms.ValidationError(
                f"{', '.join(wrong) if named else 'Nothing'} is not a signature algorithm with "
                f"a public key. Possible: {', '.join(ALGORITHMS)}."
            )
        return "\n".join(named)

    def clean_jwks(self) -> str:
        text: str = self.cleaned_data["jwks"].strip()
        if not text:
            return ""
        try:
            found = read_key_set(json.loads(text))
        except (ValueError, RecursionError) as fault:
            raise forms.ValidationError(f"This is not a JWK set: {fault}") from None
        if not found.keys:
            reasons = "; ".join(found.faults) or "it is empty"
            raise forms.ValidationError(f"No key of this set can verify a signature: {reasons}.")
        if found.has_private:
            raise forms.ValidationError("The set contains a private key. Enter public keys only.")
        return text

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        loopback = settings.IDENTITY["LOOPBACK_HTTP"]
        if self.instance.kind == Issuer.Kind.EMBEDDED:
            return cleaned
        needs = {"jwks_url", "introspection_url"}
        if not cleaned.get("jwks") and not cleaned.get("jwks_url"):
            needs.add("url")  # its discovery document is fetched
        for name in needs:
            url = cleaned.get(name) or ""
            if (url or name == "url") and (why := url_fault(url, loopback)):
                self.add_error(name, f"This {why}.")
        if cleaned.get("logs_in_operators"):
            if not cleaned.get("client_id"):
                text = "Enter the client id that the issuer knows this node by."
                self.add_error("client_id", text)
            if not cleaned.get("groups_claim"):
                self.add_error("groups_claim", "Enter the claim that names groups, e.g. groups.")
        if not lines(cleaned.get("audiences") or "") and not cleaned.get("logs_in_operators"):
            self.add_error("audiences", "Enter the client ids whose tokens are for this node.")
        return cleaned


class RoleOfGroupInline(TabularInline):
    """The roles of groups; who loses a group there loses the role at the next log-in."""

    model = RoleOfGroup
    extra = 1
    tab = False

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "role":
            kwargs["queryset"] = roles.given_by(request.user)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


@admin.register(Issuer)
class IssuerAdmin(AuditedAdmin):
    form = IssuerForm
    list_display = ("name", "url", "kind", "state_label", "domains_named")
    ordering = ("name",)
    search_fields = ("name",)
    search_help_text = "Name (its beginning)"
    fieldsets: ClassVar[Any] = (
        (None, {"fields": ("name", "url", "is_enabled")}),
        ("Claims in its tokens", {"fields": ("aliases", "domains", "audiences", "name_claim")}),
        ("Its keys", {"fields": ("algorithms", "jwks_url", "jwks")}),
        ("This node as a client of it", {"fields": ("client_id", "secret", "introspection_url")}),
        ("Log-in of operators", {"fields": ("logs_in_operators", "groups_claim", "back_url")}),
    )
    inlines = (RoleOfGroupInline,)

    def publish(self) -> None:
        post(ISSUERS_CHANGED)

    def get_inlines(self, request: HttpRequest, obj: Issuer | None) -> Any:
        """The node's own users have roles themselves."""
        return () if obj is not None and obj.kind == Issuer.Kind.EMBEDDED else self.inlines

    def save_model(self, request: HttpRequest, obj: Issuer, form: Any, change: bool) -> None:
        if form.cleaned_data.get("secret"):
            obj.client_secret = encrypt(form.cleaned_data["secret"])
        super().save_model(request, obj, form, change)
        if change and not (obj.is_enabled and obj.logs_in_operators):
            self._end_log_ins(obj)

    def delete_model(self, request: HttpRequest, obj: Issuer) -> None:
        self._end_log_ins(obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for issuer in queryset:
            self._end_log_ins(issuer)
        super().delete_queryset(request, queryset)

    def _end_log_ins(self, issuer: Issuer) -> None:
        """Who logged in with it is logged out: nobody says any more whether they may be in."""
        end_browser_sessions(*User.objects.filter(identity__issuer=issuer))

    @display(description="redirect URI to register there")
    def back_url(self, issuer: Issuer) -> str:
        if not issuer.pk:
            return "Shown when the issuer is saved."
        return settings.PUBLIC_URL.rstrip("/") + reverse("back-from-issuer", args=[issuer.pk])

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever says who its operators are gives them their roles."""
        given = set(obj.roles.values_list("role", flat=True)) if obj is not None else set()
        own = roles.given_by(request.user).filter(pk__in=given)
        return super().has_change_permission(request, obj) and len(own) == len(given)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The node's own provider can be taken out of use, not away."""
        is_own = obj is not None and obj.kind == Issuer.Kind.EMBEDDED
        return not is_own and super().has_delete_permission(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None or obj.kind != Issuer.Kind.EMBEDDED:
            return ("back_url",)
        return ("name", "url", "name_claim", "jwks_url", "jwks", "introspection_url", "client_id",
                "logs_in_operators", "groups_claim", "back_url")  # fmt: skip

    @display(description="state", label={"believed": "success", "out of use": "warning"})
    def state_label(self, issuer: Issuer) -> str:
        return "believed" if issuer.is_enabled else "out of use"

    @display(description="domains")
    def domains_named(self, issuer: Issuer) -> str:
        return ", ".join(lines(issuer.domains)) or "–"


class RevocationForm(forms.ModelForm):
    ends_sessions = forms.BooleanField(
        label="Close their sessions",
        required=False,
        initial=True,
        help_text="Close them with code 4401. Otherwise the sessions continue as anonymous.",
    )

    class Meta:
        model = Revocation
        fields = ("issuer", "subject")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in {"issuer", "subject"} & self.fields.keys():
            self.fields[name].required = True


@admin.register(Revocation)
class RevocationAdmin(AuditedAdmin):
    """Added here, or by a log-out; deleting one lifts it. Nothing of one is ever edited."""

    form = RevocationForm
    noted_as = "identity.lift"
    list_display = ("who", "issuer", "revoked_at", "ends_at", "revoked_by")
    ordering = ("-revoked_at",)
    search_fields = ("subject",)
    search_help_text = "Subject (its beginning)"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None:
            return ("issuer", "subject", "ends_sessions")
        return ("who", "issuer", "revoked_at", "ends_at", "revoked_by")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return () if obj is None else self.get_fields(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Revocation, form: Any, change: bool) -> None:
        actor = request.user.get_username()
        with transaction.atomic():
            row = revoke(
                issuer=obj.issuer,
                subject=obj.subject,
                close=form.cleaned_data["ends_sessions"],
                by=actor,
            )
            note(actor, "identity.revoke", row, {}, fields_of(row))
        obj.pk = row.pk

    def publish(self) -> None:
        post(ISSUERS_CHANGED)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """In the audit log already."""

    @display(description="subject or token")
    def who(self, revocation: Revocation) -> str:
        return str(revocation)


@admin.register(AddressOwner)
class AddressOwnerAdmin(NeverEdited):
    """Addresses reserved for their subject; deleting one frees it for anybody."""

    list_display = ("address", "subject", "issuer", "seen_at")
    ordering = ("-seen_at",)
    search_fields = ("address",)
    search_help_text = "Address (its beginning)"

    def publish(self) -> None:
        post("owners.changed")
