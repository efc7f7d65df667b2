"""Values for the fields of an add page that its address names (`…/add/?field=value`).

A value that its field does not take is left out: the page opens with that field empty, as for any
other name that means nothing to it. Django passes it on, which is a server error for dates and
references.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, time
from typing import Any

from django.contrib.admin import AdminSite, ModelAdmin
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Model
from django.http import HttpRequest


def watch(site: AdminSite) -> None:
    """Leave out what fields do not take, on every add page of the console."""
    for model_admin in site._registry.values():
        page: Any = model_admin
        page.get_changeform_initial_data = _fitting(model_admin)


def _fitting(model_admin: ModelAdmin[Any]) -> Callable[[HttpRequest], dict[str, Any]]:
    named = model_admin.get_changeform_initial_data

    def get(request: HttpRequest) -> dict[str, Any]:
        return fitting(model_admin.model, named(request))

    return get


def fitting(model: type[Model], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that the fields of a form take.

    Args:
        model: the fields are those of this one.
        values: by the name of the field, as text.

    Returns:
        The same values, but dates and times instead of their texts. Names that are no field of the
        model stay: they may be a field of its form.
    """
    fit: dict[str, Any] = {}
    for name, value in values.items():
        try:
            field: Any = model._meta.get_field(name)
        except FieldDoesNotExist:
            fit[name] = value
            continue
        form_field = field.formfield() if hasattr(field, "formfield") else None
        if form_field is None:
            continue
        try:
            taken = form_field.clean(value)
        except (ValidationError, ValueError, OverflowError):
            continue
        fit[name] = taken if isinstance(taken, date | time) else value
    return fit
