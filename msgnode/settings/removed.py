"""Settings of earlier versions, and what became of them: a start names those that are still set.

A constant is meant where a number is given; it stands with its reason in the code that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping

_IN_EMBEDDED_MODE = "it is true with NODE_MODE=embedded only"

REMOVED = {
    # identity
    "ACCESS_TOKEN_SECONDS": "ID_TOKEN_SECONDS is for access tokens, too",
    "API_KEY_DAYS": "the form of a key proposes 365 days",
    "CLIENT_FAILURES_PER_MINUTE": "it is always 20",
    "CONSOLE_SESSION_ENDS_WITH_BROWSER": "it is always true",
    "CONTACT_CARDS_PER_MINUTE": "it is always 60",
    "IDENTITY_BINDINGS_PER_RUNTIME": "it is always 1000",
    "IDENTITY_BINDS_TOKENS": "it is always true",
    "IDENTITY_CACHE": "it is always 20000",
    "IDENTITY_CHECKS_PER_SECOND": "it is always 50",
    "IDENTITY_INTROSPECTIONS_PER_SECOND": "it is always 100",
    "IDENTITY_LEEWAY": "it is always 60",
    "IDENTITY_LOOPBACK_HTTP": _IN_EMBEDDED_MODE,
    "IDENTITY_STALE_KEYS": "it is always 86400",
    "PROVIDER_KEY_LEAD_SECONDS": "it is always 900",
    # messages, sessions, addresses
    "ANSWER_TIMEOUT": "it is always 14",
    "DRAIN_STAGGER": "it is two fifths of DRAIN_SECONDS",
    "LIVENESS_TIMEOUT": "it is always 2",
    "MAX_ALLOCATION_BLOCK": "MAX_ADDRESSES_PER_REQUEST is for what is allocated, too",
    "MAX_CLOSED_SESSIONS_PER_SOURCE": "it is a tenth of MAX_CLOSED_SESSIONS",
    "MAX_LEARNED_PER_SESSION": "it is always 1000",
    "MAX_PENDING_ANSWERS": "it is always 512",
    "MAX_PENDING_ANSWERS_PER_SOURCE": "it is always 4096",
    "MAX_PENDING_ANSWERS_TOTAL": "it is always 16384",
    "RESPONSE_SECONDS": "it is always 600",
    # devices
    "DEVICE_MQTT": "devices behind a broker are served if MQTT_URL is set",
    "DEVICE_PUSH": "push services wake devices if PUSH_CONTACT is set",
}


def still_set(environment: Mapping[str, str]) -> list[str]:
    """Name each that the environment has.

    Args:
        environment: the variables, with those of the file `.env`.

    Returns:
        A sentence for each.
    """
    return [
        f"{name} is set, but is no setting any more: {became}."
        for name, became in REMOVED.items()
        if name in environment
    ]
