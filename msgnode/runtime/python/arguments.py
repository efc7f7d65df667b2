"""What an application hands over: a TypeError names what is wrong, and what it has to be."""

from __future__ import annotations

from typing import Any

from msgnode.core import addresses


def check_text(name: str, value: Any) -> None:
    """Refuse what is no text, or an empty one."""
    if not isinstance(value, str) or not value:
        raise wrong(name, "a text that is not empty", value)


def check_texts(name: str, value: Any) -> None:
    """Refuse what is no list of texts."""
    is_list = isinstance(value, (list, tuple))
    if not is_list or not all(isinstance(each, str) and each for each in value):
        raise wrong(name, "a list of texts", value)


def check_function(name: str, value: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise wrong(name, "a function", value)


def check_bool(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise wrong(name, "True or False", value)


def check_address(name: str, value: Any) -> None:
    """Refuse what is no address."""
    if not isinstance(value, str) or not addresses.parse(value).scheme:
        raise wrong(name, "an address, such as hyperty://example.org/1", value)


def wrong(name: str, shape: str, value: Any) -> TypeError:
    """What to raise: the name of an argument, what it has to be, and what it is."""
    is_shown = value is None or isinstance(value, (str, bool, int, float))
    shown = repr(value)[:62] if is_shown else f"a {type(value).__name__}"
    return TypeError(f"{name} is {shape}, not {shown}.")
