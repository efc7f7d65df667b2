"""Quality of service in the console: TURN servers, traffic classes, customers, reservations."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminPasswordWidget

from msgnode.identity.encryption import encrypt
from msgnode.qos import bookings
from msgnode.qos.capacity import OPEN, booked
from msgnode.qos.models import (
    Customer,
    Reservation,
    RoundTrip,
    TrafficClass,
    TurnServer,
    Usage,
)

from .audit import note
from .lists import AuditedAdmin, WrittenByTheNode, as_uuid, bar, begins_with

DAYS = 30
_MEGA = 1_000_000


class TurnServerForm(forms.ModelForm):
    """A server, with the password of its command line interface, which is never shown again."""

    password = forms.CharField(
        label="cli-password",
        required=False,
        strip=False,
        help_text="For the command line interface; stored encrypted. Empty: stays unchanged.",
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
    )

    class Meta:
        model = TurnServer
        fields = ("name", "urls", "traffic_class", "capacity", "is_enabled", "command_line")

    def clean_urls(self) -> str:
        lines: list[str] = self.cleaned_data["urls"].split()
        for line in lines:
            if not line.startswith(("turn:", "turns:")) or len(line) > 255:
                raise forms.ValidationError(
                    f"{line[:60]} is not a URL that begins with turn: or turns:."
                )
        return "\n".join(lines)

    def clean_command_line(self) -> str:
        place: str = self.cleaned_data["command_line"].strip()
        host, _, port = place.rpartition(":")
        if place and not (host and port.isdecimal() and 0 < int(port) < 65536):
            raise forms.ValidationError("Enter host:port, e.g. 127.0.0.1:5766.")
        return place


@admin.register(TurnServer)
class TurnServerAdmin(AuditedAdmin):
    form = TurnServerForm
    list_display = ("name", "state_label", "carries", "usage", "sessions", "fault")
    ordering = ("name",)
    search_fields = ("name",)
    search_help_text = "Name (its beginning)"
    list_select_related = ("traffic_class",)
    fields = (
        *("name", "urls", "traffic_class", "capacity", "is_enabled"),
        *("command_line", "password"),
    )

    def save_model(self, request: HttpRequest, obj: TurnServer, form: Any, change: bool) -> None:
        if form.cleaned_data.get("password"):
            obj.sealed_password = encrypt(form.cleaned_data["password"])
        super().save_model(request, obj, form, change)

    def get_queryset(self, request: HttpRequest) -> QuerySet[TurnServer]:
        self.booked = booked()
        return super().get_queryset(request)

    @display(description="state", label={"up": "success", "down": "danger", "off": "warning"})
    def state_label(self, server: TurnServer) -> str:
        return server.state if server.is_enabled else "off"

    @display(description="carries")
    def carries(self, server: TurnServer) -> str:
        return server.traffic_class.name if server.traffic_class else "all classes"

    @display(description="booked (Mbit/s)")
    def usage(self, server: TurnServer) -> SafeString:
        booked = self.booked.get(server.pk, 0)
        text = f"{booked / _MEGA:,.1f} of {server.capacity / _MEGA:,.1f}"
        return bar(booked, server.capacity, text)


@admin.register(TrafficClass)
class TrafficClassAdmin(AuditedAdmin):
    list_display = ("name", "bitrate")
    ordering = ("bitrate",)
    fields = ("name", "bitrate")


@admin.register(RoundTrip)
class RoundTripAdmin(AuditedAdmin):
    list_display = ("network", "server", "milliseconds")
    list_select_related = ("server",)
    autocomplete_fields = ("server",)
    ordering = ("network", "server")
    search_fields = ("network",)
    search_help_text = "Access network (its beginning)"
    fields = ("network", "server", "milliseconds")


@admin.register(Customer)
class CustomerAdmin(AuditedAdmin):
    list_display = ("name", "is_enabled", "usage", "open_reservations")
    ordering = ("name",)
    search_fields = ("name",)
    search_help_text = "Name (its beginning)"
    fields = ("name", "is_enabled", "quota", "usage", "days")
    readonly_fields = ("usage", "days")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Customer]:
        rows = Reservation.objects.filter(state__in=OPEN, customer__isnull=False)
        counts = rows.order_by().values("customer").annotate(number=Count("pk"))
        self.open = {row["customer"]: row["number"] for row in counts}
        return super().get_queryset(request)

    @display(description="used")
    def usage(self, customer: Customer) -> SafeString | str:
        if customer.quota is None:
            return f"{customer.used:,} bytes"
        text = f"{customer.used:,} of {customer.quota:,} bytes"
        return bar(min(customer.used, customer.quota), customer.quota, text)

    @display(description="open reservations")
    def open_reservations(self, customer: Customer) -> int:
        return self.open.get(customer.pk, 0)

    @display(description=f"its last {DAYS} days of use")
    def days(self, customer: Customer) -> SafeString | str:
        rows = list(Usage.objects.filter(customer=customer).order_by("-day")[:DAYS])
        return usage_chart(rows) if rows else "none yet"


def usage_chart(rows: list[Usage]) -> SafeString:
    """A bar a day, with both directions in words."""
    most = max(row.received + row.sent for row in rows)
    lines = format_html_join(
        "",
        '<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>',
        (
            (
                row.day.isoformat(),
                bar(row.received + row.sent, most, f"{row.received:,} + {row.sent:,}"),
                "incomplete" if row.is_incomplete else "",
            )
            for row in rows
        ),
    )
    return format_html(
        '<table class="console-table"><thead><tr><th scope="col">day</th>'
        '<th scope="col">bytes from peers + to peers</th><th scope="col"></th></tr></thead>'
        "<tbody>{}</tbody></table>",
        lines,
    )


@admin.register(Reservation)
class ReservationAdmin(WrittenByTheNode):
    list_display = (
        *("id", "state_label", "traffic_class", "bitrate", "server", "customer"),
        *("volume", "created_at", "expires_at"),
    )
    list_filter = (("state", ChoicesDropdownFilter),)
    list_select_related = ("server", "customer")
    ordering = ("-created_at",)
    sortable_by = ("created_at",)
    search_fields = ("id",)
    search_help_text = "Reservation, or its session"
    actions = ("end",)
    fields = (
        *("id", "state", "reason", "traffic_class", "bitrate", "server", "customer"),
        *("session_id", "runtime_url", "subject", "client_name", "about"),
        *("created_at", "expires_at", "ended_at", "cut_at", "told_at", "volume", "is_incomplete"),
    )

    def search_filter(self, term: str) -> Any:
        session = as_uuid(term)
        return begins_with("id", term) if session is None else Q(session_id=session)

    @display(description="state", label={"active": "success", "held": "info", "ended": "default"})
    def state_label(self, row: Reservation) -> str:
        return row.state

    @display(description="bytes from peers + to peers")
    def volume(self, row: Reservation) -> str:
        return f"{row.received:,} + {row.sent:,}"

    @action(description="End the selected reservations", permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[Reservation]) -> None:
        ids = list(queryset.values_list("pk", flat=True)[:500])
        rows = Reservation.objects.filter(pk__in=ids)
        ended = bookings.end(rows, Reservation.Reason.OPERATOR, bookings.now())
        note(request.user.get_username(), "reservation.end", ", ".join(ids)[:500], {}, {})
        messages.success(
            request, f"{ended} ended. Running flows are cut, and the owners are notified."
        )

    def has_end_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("qos.change_reservation")
