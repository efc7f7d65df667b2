"""The bodies in which the domain registry answers (docs/reference/registry.md, section A5).

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from registry.api import UNAVAILABLE

from .registry_requests import PAGE, Find

DONE = {"code": 200}
UNREACHABLE = "Error contacting the domain registry."


def found(
    request: Find, code: int, records: Mapping[str, Any], unavailable_code: int
) -> dict[str, Any]:
    """The answer to a search: `records` by URL, `code` 200, 404 or 408.

    Older runtimes expect 500 for unavailable, so a setting can replace 408. The record of an
    unavailable hyperty has no P2P handler, because nobody could answer an invitation.
    """
    if code == 404 or not records:
        return error(404, "Not Found")
    if request.page:
        first = (request.page - 1) * PAGE
        records = dict(list(records.items())[first : first + PAGE])
    records = {url: _invitable(record) for url, record in records.items()}
    value: Any = next(iter(records.values()), None) if request.is_single else records
    if code == 408:
        return {**error(unavailable_code, "Temporarily Unavailable"), "value": value}
    return {"code": code, "value": value}


def _invitable(record: Any) -> Any:
    if not isinstance(record, dict) or record.get("status") not in UNAVAILABLE:
        return record
    return {key: value for key, value in record.items() if key != "p2pHandler"}


def error(code: int, description: str) -> dict[str, Any]:
    """The body of an error, with its text under both keys that clients read."""
    return {"code": code, "desc": description, "description": description}
