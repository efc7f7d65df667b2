"""Detects concurrent edits of a row: who saves last is warned before overwriting the other's work.

A page that changes a row carries a mark of each value it was opened with. If the row has another
value when the page is saved, nothing is saved and the fields are named; saving once more overrides.
The row is locked before it is read, so that no other write comes between the check and the save: a
form writes all columns, also those that only workers change.

The same holds for each row of a page that changes many: the cells of a list, and inline rows. A row
that the reader of the page has not changed is not saved, whatever others have changed in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.admin import AdminSite, ModelAdmin
from django.core.exceptions import ValidationError
from django.db import connections, router, transaction
from django.db.models import Model, QuerySet
from django.forms import HiddenInput, ModelForm
from django.http import HttpRequest
from django.utils.crypto import salted_hmac
from django.utils.html import format_html
from django.utils.safestring import SafeString

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
    add_prefix: Callable[[str], str]
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
        name = self.add_prefix(FIELD)
        text = str(self.data.get(name, ""))[:_LONGEST] if self.is_bound else ""
        try:
            given = json.loads(text or "{}")
        except ValueError:
            return {}
        return given if isinstance(given, dict) else {}


class RowKnowsWhatItShowed(KnowsWhatItShowed):
    """The same of a row among others: what its reader has changed is what differs from the page."""

    cleaned_data: dict[str, Any]
    _errors: Any

    @property
    def changed_data(self) -> list[str]:
        """The fields that the reader of the page has changed."""
        if self.is_bound and self._errors is None:
            self.full_clean()  # a set of forms asks before that
        names: list[str] = super().changed_data  # type: ignore[misc]  # of the form
        shown, cleaned = self._given(), getattr(self, "cleaned_data", {})
        return [
            name for name in names
            if name not in shown or name not in cleaned or _mark(cleaned[name]) != shown[name]
        ]  # fmt: skip

    def _changed_by_others(self) -> list[str]:
        return super()._changed_by_others() if self.changed_data else []


class _WithMarks(HiddenInput):
    """The key of a row, and the marks of its values beside it."""

    def __init__(self, form: RowKnowsWhatItShowed) -> None:
        super().__init__()
        self._form = form

    def render(self, *args: Any, **kwargs: Any) -> SafeString:
        """Both inputs."""
        marks = format_html(
            '<input type="hidden" name="{}" value="{}">',
            self._form.add_prefix(FIELD), self._form.as_it_was,
        )  # fmt: skip
        return super().render(*args, **kwargs) + marks


def watch(site: AdminSite) -> None:
    """Add the check to every page of the console that changes rows."""
    for model_admin in site._registry.values():
        pages: Any = model_admin
        pages.get_form = _knowing(model_admin)
        pages.get_object = _locking(model_admin)
        pages.get_formsets_with_inlines = _knowing_parts(model_admin)
        if model_admin.list_editable:
            pages.get_changelist_formset = _knowing_list(model_admin)
            pages._get_list_editable_queryset = _locking_rows(model_admin)
            pages.changelist_view = _in_one_transaction(model_admin)


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


def _knowing_rows(formset: Any) -> Any:
    """A set of forms whose rows know what they showed."""

    class Rows(formset):
        form = type.__new__(
            type(formset.form), formset.form.__name__, (RowKnowsWhatItShowed, formset.form),
            {"__module__": __name__},
        )  # fmt: skip

        def add_fields(self, form: Any, index: int | None) -> None:
            super().add_fields(form, index)
            key = self._pk_field.name
            if form.instance.pk is not None and key in form.fields:
                form.fields[key].widget = _WithMarks(form)

    return Rows


def _knowing_list(model_admin: ModelAdmin[Any]) -> Callable[..., Any]:
    get_changelist_formset = model_admin.get_changelist_formset
    return lambda request, **kwargs: _knowing_rows(get_changelist_formset(request, **kwargs))


def _knowing_parts(model_admin: ModelAdmin[Any]) -> Callable[..., Iterator[tuple[Any, Any]]]:
    get_formsets_with_inlines = model_admin.get_formsets_with_inlines

    def get(request: HttpRequest, obj: Model | None = None) -> Iterator[tuple[Any, Any]]:
        for formset, inline in get_formsets_with_inlines(request, obj):
            yield _knowing_rows(formset), inline

    return get


def _locking_rows(model_admin: ModelAdmin[Any]) -> Callable[..., QuerySet[Any]]:
    edited = model_admin._get_list_editable_queryset

    def get(request: HttpRequest, prefix: str) -> QuerySet[Any]:
        rows: QuerySet[Any] = edited(request, prefix)
        keys = list(rows.order_by().values_list("pk", flat=True))
        locked = model_admin.model._base_manager.select_for_update().order_by("pk")
        list(locked.filter(pk__in=keys).values_list("pk"))
        return rows

    return get


def _in_one_transaction(model_admin: ModelAdmin[Any]) -> Callable[..., Any]:
    changelist_view = model_admin.changelist_view

    def view(request: HttpRequest, extra_context: Any = None) -> Any:
        if request.method != "POST" or "_save" not in request.POST:
            return changelist_view(request, extra_context)
        with transaction.atomic(using=router.db_for_write(model_admin.model)):
            return changelist_view(request, extra_context)

    return view


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
    value = getattr(value, "pk", value)
    text = json.dumps(value, sort_keys=True, default=str)
    return salted_hmac(__name__, text).hexdigest()[:12]
