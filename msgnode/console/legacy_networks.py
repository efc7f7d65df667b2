"""Legacy networks in the console and over REST: what is said of one, how it is, what is decided.

They are peers, and are decided about as those are; how their server is reached is entered here. The
secret can be given, and is never shown.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from rest_framework import serializers
from unfold.widgets import UnfoldAdminPasswordWidget

from msgnode.federation import store
from msgnode.legacy import rows
from msgnode.models import LegacyNetwork

from .decided import for_each
from .peers import PeerAdmin
from .peers_api import KnownFields, PeerViews

_HELP = (
    "That the server knows; for SIP the password of each account, where {user} is its name. "
    "Stored encrypted; leave it empty to keep the one that is stored."
)


_OF_OTHERS = {
    LegacyNetwork.Network.XMPP: ("transport", "media"),
    LegacyNetwork.Network.SIP: ("wants_receipts", "trusted"),
}
"""The fields that a network of a kind does not have; a script's may be any."""


class LegacyNetworkForm(forms.ModelForm):
    """The form of a row, with validation."""

    secret = forms.CharField(
        required=False, max_length=rows.MAX_SECRET, help_text=_HELP,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
    )  # fmt: skip

    class Meta:
        model = LegacyNetwork
        fields = rows.SETTABLE

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        cleaned |= rows.as_stored(cleaned)
        before = self.instance if self.instance.pk else None
        for name, fault in rows.faults(cleaned, before).items():
            self.add_error(name if name in self.fields else None, fault)
        return cleaned


@admin.register(LegacyNetwork)
class LegacyNetworkAdmin(PeerAdmin):
    form = LegacyNetworkForm
    list_display = (
        "domain",
        "speaks",
        "what_was_decided",
        "state",
        "waits",
        "traffic",
        "last_out",
        "last_in",
        "error_in_short",
    )
    list_filter = ("network", "decision")
    fields = (
        *rows.SETTABLE, "secret",
        "what_was_decided", "state", "state_at", "last_error",
        "waits", "traffic", "way_out", "way_in",
    )  # fmt: skip
    acts_on: ClassVar[tuple[str, ...]] = (
        "host", "port", "transport", "component", "media", "trusted", "sealed", "decision",
    )  # fmt: skip
    actions: ClassVar[tuple[str, ...]] = ("pause", "resume", "block", "restart", "discard")

    @admin.display(description="Network", ordering="network")
    def speaks(self, row: LegacyNetwork) -> str:
        """What it speaks, without what the gateway is there."""
        return row.get_network_display().partition(" (")[0]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Those that its kind has; for one that is added, all."""
        others = _OF_OTHERS.get(obj.network, ()) if obj is not None else ()
        return tuple(name for name in self.fields if name not in others)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        kept = ("domain", "network") if obj is not None else ()
        return tuple(name for name in self.fields if name not in (*rows.SETTABLE, "secret")) + kept

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        rows.save(obj, form.cleaned_data.get("secret", ""))

    resume = for_each("resume", "Resume")
    restart = for_each("restart", "Connect anew")


class LegacyNetworkLine(KnownFields, serializers.ModelSerializer):
    """A legacy network: how it is reached, what was decided, and how it is."""

    secret = serializers.CharField(
        write_only=True, required=False, allow_blank=True, default="", max_length=rows.MAX_SECRET,
        help_text=_HELP,
    )  # fmt: skip
    figures = serializers.SerializerMethodField(help_text="As of a peer, without a sandbox.")

    class Meta:
        model = LegacyNetwork
        fields = (*rows.SETTABLE, "secret", "decision", "state", "state_at", "last_error",
                  "figures")  # fmt: skip
        read_only_fields = fields[len(rows.SETTABLE) + 1 :]

    def get_figures(self, row: LegacyNetwork) -> dict[str, Any]:
        """What has passed to and from the network, and what waits for it."""
        return store.figures_of(row)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse what cannot be a network, or would rename one."""
        attrs = rows.as_stored(attrs)
        if self.instance is not None and attrs.get("domain", self.instance.domain) != (
            self.instance.domain
        ):
            words = "A network keeps its domain: remove it, and add another."
            raise serializers.ValidationError({"domain": [words]})
        if wrong := rows.faults(attrs, self.instance):
            raise serializers.ValidationError({name: [text] for name, text in wrong.items()})
        return attrs

    def create(self, validated_data: dict[str, Any]) -> LegacyNetwork:
        """Add a network, which is connected to."""
        secret = validated_data.pop("secret")
        row = LegacyNetwork(**validated_data)
        rows.save(row, secret)
        return row

    def update(self, instance: LegacyNetwork, validated_data: dict[str, Any]) -> LegacyNetwork:
        """Change a network, which is connected to anew."""
        secret = validated_data.pop("secret", "")
        for name, value in validated_data.items():
            setattr(instance, name, value)
        rows.save(instance, secret)
        return instance


class LegacyNetworkViews(PeerViews):
    """The legacy networks."""

    serializer_class = LegacyNetworkLine
    queryset = LegacyNetwork.objects.order_by("domain")
    approve = look = stubs = None  # a network has no stub

    def perform_create(self, serializer: Any) -> None:
        """Add a network; the serializer has the workers read it."""
        serializer.save()

    def perform_update(self, serializer: Any) -> None:
        """Change a network; the serializer has the workers read it."""
        serializer.save()
