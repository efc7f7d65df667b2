"""Address pools in the console: addresses of a scheme that are lent to sessions, and how many."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminTextareaWidget,
    UnfoldBooleanWidget,
)

from msgnode.models import AddressPool, Allocation, PoolAddress

from . import operator_actions, pool_import
from .audit import note
from .lists import AuditedAdmin, NeverEdited, bar, number_of

_LARGEST_FILE = 8 * 1024 * 1024


class PoolForm(forms.ModelForm):
    """The pool, and addresses to put into it: written, as a range, or from a file."""

    add = forms.CharField(
        label="Add addresses",
        required=False,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 6, "spellcheck": "false"}),
        help_text="One address per line, or a range such as sip:guest{001-250}@example.org.",
    )
    upload = forms.FileField(
        label="Add from a CSV file",
        required=False,
        widget=UnfoldAdminFileFieldWidget(),
        help_text="The first column holds the addresses; ranges work here too.",
    )

    for_visitors = forms.BooleanField(
        label="For visitors",
        required=False,
        widget=UnfoldBooleanWidget,
        help_text="What is added is lent to runtimes of other domains alone, all else to this "
        "domain's alone.",
    )

    class Meta:
        model = AddressPool
        fields = ("scheme", "note")

    def clean_scheme(self) -> str:
        return operator_actions.cleaned_scheme(self.cleaned_data["scheme"])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        scheme = cleaned.get("scheme") or self.instance.scheme
        found: list[str] = []
        if scheme:
            found += self._read("add", pool_import.of_text(cleaned.get("add") or "", scheme))
            upload = cleaned.get("upload")
            if upload and upload.size > _LARGEST_FILE:
                self.add_error("upload", "The file is larger than 8 MB.")
            elif upload:
                found += self._read("upload", pool_import.of_file(upload.read(), scheme))
        cleaned["found"] = list(dict.fromkeys(found))
        return cleaned

    def _read(self, field: str, lines: pool_import.Lines) -> list[str]:
        for fault in lines.faults:
            self.add_error(field, fault)
        return lines.addresses


def _lent() -> Exists:
    return Exists(Allocation.objects.filter(address=OuterRef("address")))


@admin.register(AddressPool)
class AddressPoolAdmin(AuditedAdmin):
    form = PoolForm
    list_display = ("scheme", "usage", "free", "visitors_free", "note")
    search_fields = ("scheme",)
    readonly_fields = ("usage", "addresses_link")

    def get_fields(self, request: HttpRequest, obj: AddressPool | None = None) -> list[str]:
        shown = ["usage", "addresses_link"] if obj is not None else []
        return ["scheme", "note", *shown, "add", "upload", "for_visitors"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the scheme unchanged, because lent addresses have it."""
        return (*self.readonly_fields, "scheme") if obj is not None else self.readonly_fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[AddressPool]:
        mine = PoolAddress.objects.filter(pool=OuterRef("pk"))
        return (
            super()
            .get_queryset(request)
            .annotate(
                size=number_of(mine, "pool"),
                lent=number_of(mine.filter(_lent()), "pool"),
                for_visitors=number_of(mine.filter(for_visitors=True), "pool"),
                lent_to_visitors=number_of(mine.filter(_lent(), for_visitors=True), "pool"),
            )
        )

    @display(description="lent")
    def usage(self, pool: Any) -> SafeString:
        return bar(pool.lent, pool.size, f"{pool.lent:,} of {pool.size:,}")

    @display(description="free", label={"0": "danger"})
    def free(self, pool: Any) -> str:
        """For the runtimes of this domain."""
        of_all, of_visitors = pool.size - pool.lent, pool.for_visitors - pool.lent_to_visitors
        return str(of_all - of_visitors)

    @display(description="free for visitors")
    def visitors_free(self, pool: Any) -> str:
        return f"{pool.for_visitors - pool.lent_to_visitors} of {pool.for_visitors}"

    @display(description="addresses")
    def addresses_link(self, pool: AddressPool) -> SafeString:
        url = f"{reverse('admin:msgnode_pooladdress_changelist')}?pool__id__exact={pool.pk}"
        return format_html('<a class="text-link" href="{}">See and remove addresses</a>', url)

    def publish(self) -> None:
        operator_actions.publish_pools()

    def save_model(self, request: HttpRequest, obj: AddressPool, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        found = form.cleaned_data["found"]
        if found:
            actor = request.user.get_username()
            note(actor, "addresspool.fill", obj, {}, {
                "first": found[0], "given": len(found),
                "for_visitors": form.cleaned_data["for_visitors"],
            })  # fmt: skip
            is_for_visitors = form.cleaned_data["for_visitors"]
            transaction.on_commit(lambda: self._fill(request, obj, found, is_for_visitors))

    def _fill(
        self, request: HttpRequest, pool: AddressPool, found: list[str], is_for_visitors: bool
    ) -> None:
        """After the form's transaction, in small ones: SQLite has one writer."""
        added = operator_actions.fill_pool(pool, found, is_for_visitors)
        known = len(found) - added
        messages.success(
            request,
            f"{added:,} addresses added."
            + (f" {known:,} were in a pool already." if known else ""),
        )

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, Any, Any]:
        """How many addresses go with a pool, not which."""
        size = PoolAddress.objects.filter(pool__in=[pool.pk for pool in objs]).count()
        summary = [
            f"{pool} (allocated addresses stay allocated until their session ends)" for pool in objs
        ]
        return summary, {"pools": len(summary), "addresses": size}, set(), []


@admin.register(PoolAddress)
class PoolAddressAdmin(NeverEdited):
    """Addresses, which are added on the page of their pool."""

    noted_as = "pooladdress.delete"
    list_display = ("address", "pool", "for_visitors", "is_lent")
    list_filter = ("pool", "for_visitors")
    list_select_related = ("pool",)
    ordering = ("address",)
    sortable_by = ("address",)
    search_fields = ("address",)
    search_help_text = "Address (its beginning)"

    def get_queryset(self, request: HttpRequest) -> QuerySet[PoolAddress]:
        return super().get_queryset(request).annotate(lent=_lent())

    @display(description="lent", boolean=True)
    def is_lent(self, address: Any) -> bool:
        return address.lent
