"""System checks of the node: what is set in a way that cannot work is said before anything starts.

E001 DATA_DIR can be written    E002 DOMAIN is a domain    E003 RESUME is one of its words
E004 limits are positive        E005 limits fit together   E006 ALLOCATION_SCHEMES are schemes
E007 PORT is a port             E008 ASGI_SERVER is one of the node's servers
E009 WORKERS is a number of workers
E010 REGISTRY_ACCESS is one of its words       E011 REGISTRY_UNAVAILABLE_CODE is 408 or 500
E012 numbers of the registry are positive      E013 POLICY_TIME_ZONE is a time zone
E014 numbers of the policies are not negative  E015 registries elsewhere have a URL of HTTP
E016 DEVICE_MQTT has what it needs             E017 numbers of MQTT are positive
E018 DEVICE_WEBHOOKS has what it needs         E019 DEVICE_PUSH has what it needs
E020 ADMISSION and ADMISSION_DOMAINS name modes of admission
E021 traces have a ratio that is one, and what their endpoint needs
E022 FEDERATION is one of its words, and has what it needs
E023 SPARK_NICENESS is a niceness              E024 Celery can keep its tasks in its broker
W001 PING_TIMEOUT is longer than a reader may be behind
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from msgnode.core.networks import not_networks
from msgnode.federation import checks as federation_checks
from msgnode.sessions.session import READER_PATIENCE

RESUME_WORDS = ("always", "when-idle", "with-proof")
MODES = ("anonymous", "identified", "strict")
MODES_OF_DOMAINS = (*MODES, "refused")
ACCESS_WORDS = ("open", "read-open", "account")
SERVERS = ("daphne", "uvicorn")
MAY_BE_ZERO = frozenset(
    {
        *("GRACE_PERIOD", "DRAIN_SECONDS", "DRAIN_STAGGER", "CLOSED_SESSION_DAYS"),
        *("DEAD_AFTER", "PURGE_AFTER", "HISTORY_KEPT", "REMOTE_RETRIES", "IDENTITY_LEEWAY"),
        "CLOSE_GRACE",
    }
)

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")

# A pair means: the first must be less than the second, or one frame evicts its receiver.
_ORDER = (("MAX_FRAME_BYTES", "OUTBOX_BYTES"), ("MAX_FRAME_BYTES", "LINK_BYTES"))


def _nearest_existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _data_dir() -> Iterator[CheckMessage]:
    place = _nearest_existing(settings.DATA_DIR)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        yield Error(
            f"DATA_DIR {settings.DATA_DIR} cannot be written.",
            hint="Name a directory that belongs to the user who runs the node.",
            id="msgnode.E001",
        )


def _words() -> Iterator[CheckMessage]:
    if not _DOMAIN.fullmatch(settings.DOMAIN):
        yield Error(
            f"DOMAIN {settings.DOMAIN!r} is not a domain name.",
            hint="A host name without scheme, port or path, such as example.org.",
            id="msgnode.E002",
        )
    if settings.RESUME not in RESUME_WORDS:
        yield Error(
            f"RESUME is {settings.RESUME!r}.",
            hint=f"It is one of {', '.join(RESUME_WORDS)}.",
            id="msgnode.E003",
        )
    for named, words in (
        *((each, MODES_OF_DOMAINS) for each in settings.ADMISSION_DOMAINS.values()),
        (settings.ADMISSION, MODES),
    ):
        if named not in words:
            yield Error(
                f"ADMISSION or ADMISSION_DOMAINS says {named!r}.",
                hint=f"It is one of {', '.join(words)}.",
                id="msgnode.E020",
            )
    if settings.ADMISSION_DOMAINS.get(settings.DOMAIN) == MODES_OF_DOMAINS[-1]:
        yield Error(
            "ADMISSION_DOMAINS refuses the node's own domain.",
            hint="It is about visitors: name their domains, or * for all others.",
            id="msgnode.E020",
        )
    if wrong := [name for name in settings.ALLOCATION_SCHEMES if not _SCHEME.fullmatch(name)]:
        yield Error(
            f"ALLOCATION_SCHEMES names {', '.join(map(repr, wrong))}.",
            hint="Names of URL schemes in lower case, separated by commas: hyperty,comm.",
            id="msgnode.E006",
        )
    if not 0 < settings.PORT < 65536:
        yield Error(f"PORT is {settings.PORT}.", hint="It is 1 to 65535.", id="msgnode.E007")
    if settings.ASGI_SERVER not in SERVERS:
        yield Error(
            f"ASGI_SERVER is {settings.ASGI_SERVER!r}.",
            hint=f"One of {', '.join(SERVERS)}.",
            id="msgnode.E008",
        )
    if not 0 < settings.WORKERS <= 256:
        yield Error(f"WORKERS is {settings.WORKERS}.", hint="It is 1 to 256.", id="msgnode.E009")
    niceness = settings.REPORTS["NICENESS"]
    if not 0 <= niceness <= 19:
        yield Error(f"SPARK_NICENESS is {niceness}.", hint="It is 0 to 19.", id="msgnode.E023")
    if "+cluster://" in settings.CELERY_BROKER_URL:
        yield Error(
            "Celery cannot keep its tasks in the Redis Cluster of REDIS_URL.",
            hint="Name a Redis that is one server, or has Sentinels, with CELERY_BROKER_URL.",
            id="msgnode.E024",
        )


def _limits() -> Iterator[CheckMessage]:
    limits = settings.NODE
    identity = settings.IDENTITY
    numbers = {name: n for name, n in identity.items() if type(n) in (int, float)}
    for name, value in {**limits, **{f"IDENTITY_{n}": v for n, v in numbers.items()}}.items():
        least = "zero or more" if name in MAY_BE_ZERO else "more than zero"
        if value < 0 or (value == 0 and name not in MAY_BE_ZERO) or value != value:
            yield Error(f"{name} is {value}.", hint=f"It is {least}.", id="msgnode.E004")
    for name, value in settings.VISITORS.items():
        if not value >= 0:
            text = f"A limit of visitors, {name}, is {value}."
            yield Error(text, hint="It is zero or more.", id="msgnode.E004")
    for low, high in _ORDER:
        if limits[low] >= limits[high]:
            yield Error(
                f"{low} ({limits[low]}) is not less than {high} ({limits[high]}).",
                hint="One legal frame must not be more than a session may have waiting.",
                id="msgnode.E005",
            )
    if limits["PING_TIMEOUT"] <= READER_PATIENCE:
        yield Warning(
            f"PING_TIMEOUT ({limits['PING_TIMEOUT']}) is not more than the {READER_PATIENCE} "
            "seconds in which a slow reader may catch up.",
            hint="A reader that is behind answers no ping, and would be dropped before that.",
            id="msgnode.W001",
        )


def _registry() -> Iterator[CheckMessage]:
    registry = settings.REGISTRY
    if registry["ACCESS"] not in ACCESS_WORDS:
        yield Error(
            f"REGISTRY_ACCESS is {registry['ACCESS']!r}.",
            hint=f"One of {', '.join(ACCESS_WORDS)}.",
            id="msgnode.E010",
        )
    if registry["UNAVAILABLE_CODE"] not in (408, 500):
        yield Error(
            f"REGISTRY_UNAVAILABLE_CODE is {registry['UNAVAILABLE_CODE']}.",
            hint="408 as specified, or 500 for older runtimes.",
            id="msgnode.E011",
        )
    for name, value in registry.items():
        is_number = isinstance(value, (int, float))
        if is_number and not (value > 0 or (value == 0 and name in MAY_BE_ZERO)):
            least = "zero or more" if name in MAY_BE_ZERO else "more than zero"
            hint = f"It is {least}."
            yield Error(f"REGISTRY_{name} is {value}.", hint=hint, id="msgnode.E012")
    for name in ("DOMAIN", "GLOBAL"):
        base = urlsplit(registry[f"{name}_URL"])
        if any(base) and not (base.scheme in ("http", "https") and base.hostname):
            yield Error(
                f"{name}_REGISTRY_URL is {base.geturl()!r}.",
                hint="The base URL of a registry, such as https://registry.example.org/v1.",
                id="msgnode.E015",
            )


def _policies() -> Iterator[CheckMessage]:
    policy = settings.POLICY
    try:
        ZoneInfo(policy["TIME_ZONE"])
    except (OSError, ValueError, KeyError):  # no such zone, or a name that is none
        yield Error(
            f"POLICY_TIME_ZONE {policy['TIME_ZONE']!r} is not a time zone.",
            hint="A name such as UTC or Europe/Berlin.",
            id="msgnode.E013",
        )
    for name in ("LOG_SAMPLE", "LOG_ROOM", "LOG_DAYS"):
        if not policy[name] >= 0:
            yield Error(f"POLICY_{name} is {policy[name]}.", hint="0 or more.", id="msgnode.E014")


def _mqtt() -> Iterator[CheckMessage]:
    if not settings.DEVICE_MQTT:
        return
    mqtt = settings.MQTT
    try:
        url = urlsplit(mqtt["URL"])
        is_good = url.scheme in ("mqtt", "mqtts") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none
        is_good = False
    if not is_good:
        said = "is missing" if not mqtt["URL"] else "is no URL of a broker"
        yield Error(
            f"DEVICE_MQTT is on, and MQTT_URL {said}.",
            hint="Where the broker is: mqtt://name:password@broker.example.org:1883, or mqtts://.",
            id="msgnode.E016",
        )
    for name in ("CA_FILE", "CERT_FILE", "KEY_FILE"):
        if mqtt[name] and not os.access(mqtt[name], os.R_OK):
            yield Error(
                f"MQTT_{name} {mqtt[name]} cannot be read.",
                hint="Name a PEM file that the user who runs the node can read.",
                id="msgnode.E016",
            )
    if bool(mqtt["CERT_FILE"]) != bool(mqtt["KEY_FILE"]):
        yield Error(
            "MQTT_CERT_FILE and MQTT_KEY_FILE belong together, and one is missing.",
            hint="Give both, or none.",
            id="msgnode.E016",
        )
    if not mqtt["PREFIX"] or any(mark in mqtt["PREFIX"] for mark in "+#$"):
        yield Error(
            f"MQTT_PREFIX is {mqtt['PREFIX']!r}.",
            hint="What the topics of devices begin with: levels without wildcards.",
            id="msgnode.E016",
        )
    if not 0 < mqtt["WINDOW"] <= 65_535:
        yield Error(
            f"MQTT_WINDOW is {mqtt['WINDOW']}.", hint="It is 1 to 65535.", id="msgnode.E017"
        )
    if not mqtt["MESSAGES_PER_SECOND"] > 0:
        yield Error(
            f"MQTT_MESSAGES_PER_SECOND is {mqtt['MESSAGES_PER_SECOND']}.",
            hint="It is more than zero.",
            id="msgnode.E017",
        )


def _webhooks() -> Iterator[CheckMessage]:
    if settings.DEVICE_WEBHOOKS and not settings.DEVICE_HTTP:
        yield Error(
            "DEVICE_WEBHOOKS is on, and DEVICE_HTTP is not.",
            hint="A webhook belongs to a session over HTTP: set DEVICE_HTTP=true too.",
            id="msgnode.E018",
        )
    for each in not_networks(settings.WEBHOOK_NETWORKS):
        yield Error(
            f"WEBHOOK_NETWORKS names {each!r}.",
            hint="Networks, such as 10.1.0.0/16, separated by commas.",
            id="msgnode.E018",
        )


def _push() -> Iterator[CheckMessage]:
    if not settings.DEVICE_PUSH:
        return
    if not settings.DEVICE_HTTP:
        yield Error(
            "DEVICE_PUSH is on, and DEVICE_HTTP is not.",
            hint="A push subscription belongs to a session over HTTP: set DEVICE_HTTP=true too.",
            id="msgnode.E019",
        )
    if not settings.PUSH_CONTACT.startswith(("mailto:", "https://")):
        said = "is missing" if not settings.PUSH_CONTACT else "is no address"
        yield Error(
            f"DEVICE_PUSH is on, and PUSH_CONTACT {said}.",
            hint="Whom push services may write to: mailto:operator@example.org, or https://…",
            id="msgnode.E019",
        )


def _tracing() -> Iterator[CheckMessage]:
    if not 0 <= settings.TRACING["RATIO"] <= 1:
        yield Error(
            f"TRACE_SAMPLE_RATIO is {settings.TRACING['RATIO']}.",
            hint="The part of all messages that is traced, from 0 to 1.",
            id="msgnode.E021",
        )
    endpoint = settings.TRACING["ENDPOINT"]
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        yield Error(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is {endpoint!r}.",
            hint="The URL of a collector that takes OTLP over HTTP: http://127.0.0.1:4318",
            id="msgnode.E021",
        )
    if endpoint and find_spec("opentelemetry") is None:
        yield Error(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry is not installed.",
            hint="pip install 'messaging-node[otlp]'",
            id="msgnode.E021",
        )


@register()
def check_node(**_: Any) -> list[CheckMessage]:
    """All of the node's own checks."""
    return [
        *_data_dir(),
        *_words(),
        *_limits(),
        *_registry(),
        *_policies(),
        *_mqtt(),
        *_webhooks(),
        *_push(),
        *_tracing(),
        *federation_checks.faults(),
    ]
