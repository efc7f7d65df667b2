"""Shapes of /api/v1.

Field names are the registry's own (docs/reference/registry.md, section A1), plus `key` and `url`.
Serializers describe and check; what a value means is decided by registry.records and entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from registry import api
from registry.models import StatusChange, User
from registry.records import (
    MAX_GUID,
    MAX_ITEM,
    MAX_ITEMS,
    MAX_KEY,
    MAX_TEXT,
    MAX_WORD,
    idp_identifier,
    stamp,
)

from .paths import key_of


def _words(**kwargs: Any) -> serializers.ListField:
    child = serializers.CharField(max_length=MAX_ITEM, allow_blank=True, trim_whitespace=False)
    return serializers.ListField(child=child, max_length=MAX_ITEMS, **kwargs)


def _text_field(limit: int, **kwargs: Any) -> serializers.CharField:
    return serializers.CharField(
        max_length=limit, allow_blank=True, trim_whitespace=False, **kwargs
    )


_NAMED = 10


class EntrySerializer(serializers.Serializer[api.Entry]):
    """What hyperties and data objects have in common."""

    key = serializers.CharField(read_only=True, help_text="The URL in base64url, unpadded.")
    url = serializers.CharField(read_only=True)
    resources = _words()
    dataSchemes = _words()
    status = _text_field(
        MAX_WORD, help_text="created, live, disconnected, dead, or a word of the client"
    )
    expires = serializers.IntegerField(
        min_value=0, max_value=2**31 - 1, help_text="Seconds it lives without a sign of life."
    )
    runtime = _text_field(MAX_KEY)
    p2pRequester = _text_field(MAX_TEXT, required=False)
    p2pHandler = _text_field(MAX_TEXT, required=False)
    startingTime = serializers.DateTimeField(read_only=True)
    lastModified = serializers.DateTimeField(read_only=True)
    expiresAt = serializers.DateTimeField(read_only=True, allow_null=True)

    def to_internal_value(self, data: Any) -> Any:
        """A field that is not there would change nothing and say nothing; it is refused instead."""
        if isinstance(data, Mapping) and (unknown := sorted(set(data) - set(self.fields))):
            words = f"There is no such field; one of {', '.join(sorted(self.fields))}."
            raise serializers.ValidationError({name: [words] for name in unknown[:_NAMED]})
        return super().to_internal_value(data)

    def to_representation(self, instance: api.Entry) -> dict[str, Any]:
        fields = api.record(instance)
        fields.pop("hypertyID", None)
        due = instance.expires_at
        head = {"key": key_of(instance.url), "url": instance.url}
        return head | self.owner(fields) | {"expiresAt": stamp(due) if due else None}

    def owner(self, fields: dict[str, Any]) -> dict[str, Any]:
        return fields


class HypertySerializer(EntrySerializer):
    """A hyperty instance."""

    user = serializers.CharField(max_length=MAX_KEY, trim_whitespace=False)
    email = serializers.CharField(read_only=True, help_text="Last part of the user id.")
    descriptor = _text_field(MAX_TEXT)
    guid = _text_field(MAX_GUID, required=False)

    def owner(self, fields: dict[str, Any]) -> dict[str, Any]:
        user = fields.pop("userID")
        return {"user": user, "email": idp_identifier(user), **fields}


class HypertyPatchSerializer(HypertySerializer):
    """What can be changed of a hyperty; its user stays."""

    user = serializers.CharField(read_only=True)


class DataObjectSerializer(EntrySerializer):
    """A data object instance."""

    name = _text_field(MAX_KEY)
    schema = _text_field(MAX_TEXT)
    reporter = _text_field(MAX_KEY)


class UserSerializer(serializers.ModelSerializer[User]):
    """Somebody with registered hyperties."""

    userID = serializers.CharField(source="user_id")
    email = serializers.CharField(source="idp_identifier")
    firstSeen = serializers.DateTimeField(source="first_seen")

    class Meta:
        model = User
        fields = ("userID", "email", "firstSeen")


class StatusChangeSerializer(serializers.ModelSerializer[StatusChange]):
    """One change of an entry's status."""

    class Meta:
        model = StatusChange
        fields = ("kind", "url", "before", "after", "cause", "at")


class GlobalRecordSerializer(serializers.Serializer[Mapping[str, str]]):
    """A signed record, as its owner wrote it."""

    guid = serializers.CharField(read_only=True)
    jwt = serializers.CharField(trim_whitespace=False)


class ProblemSerializer(serializers.Serializer[Mapping[str, Any]]):
    """Problem details (RFC 9457)."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    errors = serializers.DictField(required=False)
