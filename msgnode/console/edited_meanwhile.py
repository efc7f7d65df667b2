"""Detects concurrent edits of a row: who saves last is warned before overwriting the other's work.

A page that changes a row carries a mark of each value it was opened with. If the row has another
value when the page is saved, nothing is saved and the fields are named; saving once more overrides.
The row is locked before it is read, so that no other write comes between the check and the save: a
form writes all columns, also those that only workers change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.contrib.admin import AdminSite, ModelAdmin
from django.core.exceptions import ValidationError
from django.db import connections, router
from django.db.models import Model
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

FIELD = "as_it_was"
"""The hidden field that the marks are in."""
_LONGEST = 20_000


class KnowsWhatItShowed:
    """A form mixin that detects whether its row was changed after the form was shown."""

    fields: dict[str, Any]
    initial: dict[str, Any]
    data: Any
    is_bound: bool
    add_error: Callable[[None, str], None]
    is_told = False

    def full_clean(self) -> None:
        """Validate, and then check whether somebody else has changed the row."""
        super().full_clean()  # type: ignore[misc]  # of the form
        if not self.is_bound or not (others := self._changed_by_others()):
            return
        self.is_told = True
        names = ", ".join(str(self.fields[name].label or name) for name in others)
        self.add_error(
            None,
            f"Somebody has changed this while you had it open: {names}. Nothing is saved yet. Load "
            "the page anew to see it as it is now, or save again to put yours in its place.",
        )

    @property
    def as_it_was(self) -> str:
        """The marks for the page: those it came with, until its reader knows of other values."""
        given = {} if self.is_told else self._given()
        return json.dumps(given or self._marks(), separators=(",", ":"))

    def _changed_by_others(self) -> list[str]:
        now = self._marks()
        return [name for name, mark in self._given().items() if now.get(name, mark) != mark]

    def _marks(self) -> dict[str, str]:
        """A mark for each value in the database, which does not reveal the value."""
        return {name: _mark(self.initial[name]) for name in self.fields if name in self.initial}

    def _given(self) -> dict[str, Any]:
        text = str(self.data.get(FIELD, ""))[:_LONGEST] if self.is_bound else ""
        try:
            given = json.loads(text or "{}")
        except ValueError:
            return {}
        return given if isinstance(given, dict) else {}


def watch(site: AdminSite) -> None:
    """Add the check to every page of the console that changes a row."""
    for model_admin in site._registry.values():
        pages: Any = model_admin
        pages.get_form = _knowing(model_admin)
        pages.get_object = _locking(model_admin)


def _knowing(model_admin: ModelAdmin[Any]) -> Callable[..., type[ModelForm]]:
    get_form = model_admin.get_form

    def get(
        request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm]:
        form: Any = get_form(request, obj, change=change, **kwargs)
        if obj is None:
            return form
        bases = (KnowsWhatItShowed, form)
        # Not by its metaclass, which would make all fields a second time.
        return type.__new__(type(form), form.__name__, bases, {"__module__": __name__})

    return get


def _locking(model_admin: ModelAdmin[Any]) -> Callable[..., Model | None]:
    get_object = model_admin.get_object
    model = model_admin.model

    def get(request: HttpRequest, object_id: str, from_field: str | None = None) -> Model | None:
        database = router.db_for_write(model)
        if request.method == "POST" and connections[database].in_atomic_block:
            try:
                key = model._meta.pk.to_python(object_id)
            except ValidationError:
                return None
            rows = model._base_manager.using(database).select_for_update()
            rows.filter(pk=key).values_list("pk").first()
        return get_object(request, object_id, from_field)

    return get


def _mark(value: object) -> str:
    if hasattr(value, "__iter__") and not isinstance(value, str | bytes | dict):
        value = sorted(str(getattr(each, "pk", each)) for each in value)
    text = json.dumps(value, sort_keys=True, default=str)
    return salted_hmac(__name__, text).hexdigest()[:12]
