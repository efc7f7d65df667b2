"""The OpenAPI document of the node: refusals that every operation may give.

Operations describe what is their own. What the framework answers for all of them (a request that
cannot be read, nobody logged in, no permission, nothing there) is added here where a view says
nothing of it.
"""

from __future__ import annotations

from typing import Any

REFUSALS = {
    "400": "The request cannot be read",
    "401": "Authentication required",
    "403": "This client may not do this",
    "404": "Not found",
}
_SHAPE = {"type": "object", "properties": {"detail": {"type": "string"}}}
_CONTENT = {"application/json": {"schema": _SHAPE}}
_NOTHING = {  # an id that no address has is answered by what answers all other addresses
    **_CONTENT,
    "application/problem+json": {"schema": _SHAPE},
    "text/html": {"schema": {"type": "string"}},
}


def describe_refusals(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A hook of drf-spectacular, called with the finished document."""
    for operations in result["paths"].values():
        for operation in operations.values():
            for code, words in REFUSALS.items():
                content = _NOTHING if code == "404" else _CONTENT
                known = {"description": words, "content": content}
                operation["responses"].setdefault(code, known)
    return result
