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
    """Messages that pass the node's other workers within so many seconds, at most so many; None
    where there are none, or this process is not a worker."""

    recorded: Callable[[datetime, int, int], Any] | None = None
    """The most frequent kinds of recorded messages: until when, of how many hours, how many kinds.
    None where nothing is recorded. Raises OSError."""

    def show_messages_of_others(self, messages: Callable[[float, int], Sequence[Any]]) -> None:
        """The pages of this process, which is a worker, show what passes the others, too.

        Django has made the app before there was a worker.
        """
        self.messages_of_others = messages

    @classmethod
    def installed(cls) -> PoliciesConfig:
        """The app of this process."""
        return cast(PoliciesConfig, apps.get_app_config("policies"))
