"""An add page whose address names values: what a field takes is filled in, the rest is left out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from msgnode.console.prefilled import fitting
from msgnode.models import ApiKey, Subscription
from msgnode.site_urls import CONSOLE

MODELS = sorted(CONSOLE._registry, key=lambda model: model._meta.label)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label_lower)
@pytest.mark.parametrize("value", ["\0", "9" * 24])
def test_an_address_with_any_values_opens_a_page(
    operator: Client, model: type[Model], value: str
) -> None:
    page = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_add")
    named = {field.name: value for field in model._meta.fields}
    assert operator.get(page, named).status_code in (200, 302, 403)


def test_a_field_takes_a_date_and_keeps_its_default_otherwise(operator: Client) -> None:
    page = reverse("admin:msgnode_apikey_add")
    form = operator.get(page, {"expires_at": "2027-01-02 03:04"}).context["adminform"].form
    assert form["expires_at"].initial == datetime(2027, 1, 2, 3, 4, tzinfo=UTC)
    default = operator.get(page).context["adminform"].form["expires_at"].initial
    form = operator.get(page, {"expires_at": "soon"}).context["adminform"].form
    assert abs((form["expires_at"].initial - default).total_seconds()) < 60


@pytest.mark.django_db
def test_what_no_row_or_choice_has_is_left_out_and_other_names_stay() -> None:
    assert fitting(Subscription, {"session": "0" * 32, "url": "a://b/c", "other": "1"}) == {
        "url": "a://b/c",
        "other": "1",
    }
    assert fitting(ApiKey, {"name": "\0", "is_active": "on"}) == {"is_active": "on"}


def test_a_report_of_no_kind_is_the_daily_one(operator: Client) -> None:
    page = reverse("admin:spark_reportrun_add")
    for query in ({"kind": "x"}, {"start": "x"}):
        form = operator.get(page, query).context["adminform"].form
        assert form["kind"].initial == "daily"
        assert (
            form["start"].initial == operator.get(page).context["adminform"].form["start"].initial
        )
