"""Address pools in the console: addresses of a scheme that are lent to sessions."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from msgnode.models import AddressPool, Allocation, PoolAddress

from .lists import ConsoleAdmin, link


@admin.register(AddressPool)
class AddressPoolAdmin(ConsoleAdmin):
    list_display = ("scheme", "note")

    search_fields = ("scheme",)


@admin.register(PoolAddress)
class PoolAddressAdmin(ConsoleAdmin):
    list_display = ("address", "pool_link", "is_lent")
    list_filter = ("pool",)
    list_select_related = ("pool",)
    ordering = ("address",)
    sortable_by = ("address",)
    search_fields = ("address",)
    search_help_text = "Address (its beginning)"
    autocomplete_fields = ("pool",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[PoolAddress]:
        lent = Allocation.objects.filter(address=OuterRef("address"))
        return super().get_queryset(request).annotate(lent=Exists(lent))

    @display(description="pool", ordering="pool")
    def pool_link(self, address: PoolAddress) -> SafeString:
        return link(address.pool, address.pool.scheme)

    @display(description="lent", boolean=True)
    def is_lent(self, address: PoolAddress) -> bool:
        return address.lent
