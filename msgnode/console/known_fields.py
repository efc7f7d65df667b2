"""Refuses unknown fields in bodies of the REST interface, instead of ignoring them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

NAMED = 10
"""Fields that an answer names as wrong, at most."""


class KnownFields(serializers.Serializer):
    """A body all of whose fields can be set here.

    A field that is not would be passed over in silence: `decision` would decide nothing, and a
    slip in the name of `messages` would discard all that waits.
    """

    def to_internal_value(self, data: Any) -> Any:
        """The values, if each name is that of a field that can be set."""
        can = {name for name, field in self.fields.items() if not field.read_only}
        if isinstance(data, Mapping) and (others := sorted(set(data) - can)):
            words = f"It cannot be set here. Fields that can be set: {', '.join(sorted(can))}."
            raise serializers.ValidationError({name: [words] for name in others[:NAMED]})
        return super().to_internal_value(data)
