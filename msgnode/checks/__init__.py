"""System checks of the node: settings that cannot work are reported before anything starts.

All are listed here, so that each identifier is used once; the modules follow the settings' topics.
They yield the identifier of each fault, what is wrong, and what would be right.

E001 DATA_DIR can be written    E002 DOMAIN is a domain    E003 RESUME is one of its words
E004 limits are positive        E005 limits fit together
E007 PORT is a port             E009 WORKERS is a number of workers
E010 REGISTRY_ACCESS is one of its words       E011 REGISTRY_UNAVAILABLE_CODE is 408 or 500
E012 numbers of the registry are positive      E013 POLICY_TIME_ZONE is a time zone
E014 numbers of the policies are not negative  E015 registries elsewhere have a URL of HTTP
E016 MQTT_URL is one, and has what it needs    E017 numbers of MQTT are positive
E018 DEVICE_WEBHOOKS has what it needs         E019 PUSH_CONTACT is one, and has what it needs
E020 ADMISSION and ADMISSION_DOMAINS name modes of admission
E021 traces have a ratio that is one, and what their endpoint needs
E022 FEDERATION is one of its words, and has what it needs
E024 Celery can keep its tasks in its broker
W001 PING_TIMEOUT is longer than a reader may be behind
W002 bubblewrap works where it is wanted
W004 nothing is set that was a setting of an earlier version
W003 encrypted secrets can be read with the keys in the settings (looks at the database)
"""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError

from msgnode.identity import sealed_secrets

from . import devices, federation, node, services

_TOPICS = (node, services, devices, federation)


@register()
def check_node(**_: Any) -> list[CheckMessage]:
    """All of the node's own checks."""
    found = [fault for topic in _TOPICS for fault in topic.faults()]
    return [
        (Warning if id_.startswith("W") else Error)(text, hint or None, id=f"msgnode.{id_}")
        for id_, text, hint in found
    ]


@register(Tags.database)
def check_secrets(databases: Any = None, **_: Any) -> list[CheckMessage]:
    """Whether what is encrypted in the database can be read; asked for with the database only."""
    if not databases:
        return []
    try:
        fault = sealed_secrets.fault()
    except DatabaseError:  # not migrated yet
        return []
    return [Warning(fault, id="msgnode.W003")] if fault else []
