"""The guide beside the editor: complete, and nothing in it that would not be read."""

from __future__ import annotations

import pytest
from django.urls import reverse

from policies.authoring import language_reference
from policies.engine.documents import read_document
from policies.engine.vocabulary import ATTRIBUTES, OBLIGATIONS, OPERATORS
from policies.models import Policy, PolicySet


def test_every_word_of_the_language_is_explained():
    told = [name for group in language_reference.ATTRIBUTES.values() for name in group]
    assert sorted(told) == sorted(ATTRIBUTES)
    assert sorted(language_reference.OPERATORS) == sorted(OPERATORS)
    assert sorted(language_reference.OBLIGATIONS) == sorted(OBLIGATIONS)


@pytest.mark.parametrize("example", language_reference.EXAMPLES, ids=lambda each: each.title)
def test_every_example_is_a_rule_in_order(example):
    read_document([{"policies": [{"rules": [example.as_rule()]}]}])


@pytest.mark.django_db
def test_rules_have_examples_and_targets_have_the_words(admin_client):
    page = admin_client.get(reverse("admin:policies_rule_add")).content.decode()
    assert "Closed at night" in page
    assert "verified e-mail address of the sender" in page
    page = admin_client.get(reverse("admin:policies_policyset_add")).content.decode()
    assert 'data-into="target"' in page
    assert "Closed at night" not in page


@pytest.mark.django_db
def test_the_parts_of_a_set_can_be_reached_without_a_mouse(admin_client):
    policy_set = PolicySet.objects.create(key="S")
    policy = Policy.objects.create(key="P", policy_set=policy_set)
    page = admin_client.get(reverse("admin:policies_policyset_change", args=[policy_set.pk]))
    assert reverse("admin:policies_policy_change", args=[policy.pk]) in page.content.decode()
