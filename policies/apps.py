"""The policy engine as a Django app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast

from django.apps import AppConfig, apps


class PoliciesConfig(AppConfig):
    """Label `policies`."""

    name = "policies"
    verbose_name = "Policies"
    default_auto_field = "django.db.models.BigAutoField"

    messages_of_others: Callable[[float, int], Sequence[Any]] | None = None
    """Messages that pass the node's other workers within so many seconds, at most so many. Set by
    a worker that may have others."""

    recorded: Callable[[datetime, int, int], Any] | None = None
    """The most frequent kinds of recorded messages: until when, of how many hours, how many kinds.
    None where nothing is recorded. Raises OSError."""

    @classmethod
    def installed(cls) -> PoliciesConfig:
        """The app of this process."""
        return cast(PoliciesConfig, apps.get_app_config("policies"))
