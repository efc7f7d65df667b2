"""Who may speak, in words for operators: on the first page and in `node_status`."""

from __future__ import annotations

from typing import Any

from django.conf import settings

_WORDS = {
    "anonymous": "Anybody may connect and send messages without an identity (ADMISSION=anonymous).",
    "identified": "Every message needs a valid identity (ADMISSION=identified).",
    "strict": "Every session must be logged in (ADMISSION=strict).",
}


def admission_summary() -> dict[str, Any]:
    """{mode, domains, is_open, text}: `is_open` if some runtimes need no identity."""
    mode, domains = settings.ADMISSION, dict(settings.ADMISSION_DOMAINS)
    others = "; ".join(f"{name}: {word}" for name, word in sorted(domains.items()))
    text = _WORDS[mode] + (f" Runtimes of single domains: {others}." if others else "")
    is_open = "anonymous" in (mode, *domains.values())
    return {"mode": mode, "domains": domains, "is_open": is_open, "text": text}
