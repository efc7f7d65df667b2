"""The policy the measured node has in force: 100 rules, indexed by their targets, that forbid what
nobody in the load does. Every message is decided upon; none is refused.
"""

from __future__ import annotations

from typing import Any

RULES = 100


def document() -> list[dict[str, Any]]:
    """The policy as `manage.py policy_import` reads it."""
    rules = [
        {
            "effect": "deny",
            "target": {
                "msgType": {"equals": "dataSync"},
                "dstSPDomain": {"equals": f"partner-{number}.example"},
            },
            "condition": {"srcUsername": {"like": f"*@banned-{number}.example"}},
        }
        for number in range(RULES)
    ]
    return [{"id": "bench", "mode": "enforce", "policies": [{"rules": rules}]}]
