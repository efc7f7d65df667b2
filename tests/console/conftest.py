"""An operator who has logged in."""

import pytest
from django.test import Client


@pytest.fixture
def operator(db, django_user_model) -> Client:
    user = django_user_model.objects.create_superuser("operator", password="let me in")
    client = Client()
    client.force_login(user)
    return client
