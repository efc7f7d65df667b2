"""The policy the measured node has in force: 100 rules.

90 are about one partner's domain each, and their index passes over them; nine look at every
message, whoever sends it; one refuses what is meant for a domain to which nothing may go.
"""

from __future__ import annotations

from typing import Any

RULES = 100
LOOKING = 9


def document() -> list[dict[str, Any]]:
    """The policy as `manage.py policy_import` reads it."""
    partners = [
        {
            "effect": "deny",
            "target": {
                "msgType": {"equals": "dataSync"},
                "dstSPDomain": {"equals": f"partner-{number}.example"},
            },
            "condition": {"srcUsername": {"like": f"*@banned-{number}.example"}},
        }
        for number in range(RULES - LOOKING - 1)
    ]
    looking = [
        {"effect": "deny", "condition": {"srcUsername": {"like": f"*@spam-{number}.example"}}}
        for number in range(LOOKING)
    ]
    forbidden = {"effect": "deny", "target": {"dstSPDomain": {"equals": "forbidden.example"}}}
    rules = [*partners, *looking, forbidden]
    return [{"id": "bench", "mode": "enforce", "policies": [{"rules": rules}]}]
