"""A hyperty runtime for Python: MiniBUS, MessageBUS, protocol on the fly, sandboxes.

What is exported is imported when it is first asked for: a sandbox needs little of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bus import Fault
    from .message_bus import MessageBus
    from .messages import BadMessage, Message
    from .minibus import MiniBus
    from .pipeline import Pipeline
    from .protostub import Protostub, activate

_WHERE = {
    "BadMessage": "messages",
    "Fault": "bus",
    "Message": "messages",
    "MessageBus": "message_bus",
    "MiniBus": "minibus",
    "Pipeline": "pipeline",
    "Protostub": "protostub",
    "activate": "protostub",
}

__all__ = [
    "BadMessage",
    "Fault",
    "Message",
    "MessageBus",
    "MiniBus",
    "Pipeline",
    "Protostub",
    "activate",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
