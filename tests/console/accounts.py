"""Accounts that use the console and its API."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.test import Client


def as_role(role: str) -> Client:
    """A browser in which somebody of a role, or of none, is logged in; one of its own.

    Args:
        role: of roles.py, "" for none.
    """
    user = User.objects.create_user(role or "stranger", is_staff=not role)
    if role:
        user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return client
