"""Turns the source of a stub into an instance on a bus, by any of the ways the field knows.

activate(stub_url, bus, config)         a function of the module or of its `default`; returns
                                        {"name": …, "instance": …}
class with _start(stub_url, bus, config, factory)   named by the descriptor, or `default`
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from .minibus import MiniBus


class NoStub(Exception):
    """The source has nothing that could be started."""


def start_stub(source: str, class_name: str, url: str, bus: MiniBus, config: dict[str, Any]) -> Any:
    """Run the source and start its stub; returns the instance. Raises whatever the source does."""
    name = f"stub_{abs(hash(url))}"
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    exec(compile(source, url, "exec"), module.__dict__)  # noqa: S102 (what a sandbox is for)
    default = getattr(module, "default", None)
    for holder in (module, default):
        activate = getattr(holder, "activate", None)
        if callable(activate):
            made = activate(url, bus, config)
            return made["instance"] if isinstance(made, dict) else made
    for found in (default, getattr(module, class_name or "default", None)):
        if inspect.isclass(found) and hasattr(found, "_start"):
            instance: Any = found()
            instance._start(url, bus, config, {})
            return instance
    raise NoStub("The source has neither activate() nor a class with _start().")
