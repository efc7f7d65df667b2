"""Deleting what a session holds, an address or a subscription: asked for, audited, live at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from .lists import WrittenByTheNode


class HeldBySessions(WrittenByTheNode):
    """Rows that an operator may delete; `take_back` frees them in the workers too."""

    def take_back(self, rows: Iterable[Any], actor: str) -> int:
        """Delete the rows, audited, and notify the workers; return their number."""
        raise NotImplementedError

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The sessions in a query of their own.

        Joined, a database without statistics (after a restore) may put all rows together to show
        fifty.
        """
        return super().get_queryset(request).prefetch_related("session")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow deletion to those who may delete rows, though nobody may edit them."""
        return request.user.has_perm(f"{self.opts.app_label}.delete_{self.opts.model_name}")

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Take one address back from its session."""
        self.take_back([obj], request.user.get_username())

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Take the chosen addresses back, in one change."""
        rows = list(queryset.prefetch_related(None))
        self.take_back(rows, request.user.get_username())
