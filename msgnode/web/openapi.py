"""The OpenAPI document of the node: groups operations, and adds the errors common to all.

Views describe what is specific to them. What the framework answers for all of them (an unreadable
request, not logged in, no permission, not found, no database) is added here if a view does not
describe it. All errors are problem details (RFC 9457).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

API = "/api/v1/"
REFUSALS = {
    "400": "The request cannot be read",
    "401": "Authentication required",
    "403": "The client may not do this",
    "404": "Not found",
    "503": "The database is slow, full or out of reach: see Retry-After",
}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_NOTHING = {  # an id that no address has is answered by what answers all other addresses
    **_PROBLEM,
    "text/html": {"schema": {"type": "string"}},
}


def group_operations(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A hook of drf-spectacular: a tag for each collection, and a line for each operation.

    What a view says of itself stands at all of its operations: it describes the collection, and is
    no operation's summary.
    """
    collections: dict[str, list[dict[str, Any]]] = {}
    for path, operations in result["paths"].items():
        if path.startswith(API):
            name = path.removeprefix(API).split("/")[0].replace("-", " ")
            collections.setdefault(name, []).extend(operations.values())
    for name, those in collections.items():
        said = Counter(each.get("description", "") for each in those)
        common = next(iter(said))
        for operation in those:
            operation["tags"] = [name]
            own = operation.get("description", "")
            if own != common:
                operation.setdefault("summary", own.partition("\n")[0])
        result.setdefault("tags", []).append({"name": name, "description": common})
    return result


def describe_refusals(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A hook of drf-spectacular, called with the finished document."""
    for path, operations in result["paths"].items():
        for operation in operations.values():
            responses = operation["responses"]
            for code, words in REFUSALS.items():
                content = _NOTHING if code == "404" else _PROBLEM
                responses.setdefault(code, {"description": words, "content": content})
            for code, response in responses.items():
                is_refusal = path.startswith(API) and int(code) >= 400
                if is_refusal and "application/json" in response.get("content", {}):
                    response["content"] = _PROBLEM
    return result
