"""Messages as a bus of a runtime reads and writes them: tolerant in, strict out.

A message is a dict: `id`, `type`, `from`, `to`, `body`. Nothing here waits or keeps state.
"""

from __future__ import annotations

import json
import marshal
from typing import Any

Message = dict[str, Any]

MAX_RECIPIENTS = 100
EVENTS = ("/changes", "/status")
_ENDED = 200
_MARKS = ("auth", "assertedIdentity", "via", "peer")


class BadMessage(ValueError):
    """A message that cannot be delivered as it is; the text names what is wrong."""


def copy_of(message: Message) -> tuple[Message, int]:
    """A deep copy, and about how many characters the message has.

    Raises:
        BadMessage: it holds what JSON cannot say, or is nested too deeply.
    """
    try:
        # Several times as fast as copy.deepcopy. Version 2 shares nothing between the two, and
        # what is read here was written a moment ago by this very call.
        data = marshal.dumps(message, 2)
        return marshal.loads(data), len(data)  # noqa: S302
    except ValueError:
        pass
    try:
        text = json.dumps(message)
        return json.loads(text), len(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadMessage(f"The message is not JSON: {error}") from None


def size_of(message: Message) -> int:
    """Bytes of the message as JSON text in UTF-8, and of the content that JSON cannot carry."""
    sizes: list[int] = []
    text = json.dumps(
        message,
        separators=(",", ":"),
        ensure_ascii=False,
        default=lambda each: sizes.append(len(each)),
    )
    return len(text.encode(errors="surrogatepass")) + sum(sizes)


def recipients(message: Message) -> list[str]:
    """Check the header, write `type` in lower case, and list the distinct recipients.

    Raises:
        BadMessage: naming the field that is missing or wrong.
    """
    for name in ("type", "from"):
        if not isinstance(message.get(name), str) or not message[name]:
            raise BadMessage(f"The message lacks the text `{name}`.")
    to = message.get("to")
    found = list(dict.fromkeys([to])) if isinstance(to, str) else to
    if not isinstance(found, list) or not found or not all(isinstance(x, str) and x for x in found):
        raise BadMessage("The message lacks `to`: an address or a list of addresses.")
    if len(found) > MAX_RECIPIENTS:
        raise BadMessage(f"The list `to` has more than {MAX_RECIPIENTS} recipients.")
    if not isinstance(message.get("body", {}), (dict, type(None), str)):
        raise BadMessage("The field `body` is not an object.")
    if not isinstance(message.get("id", 0), (int, float, str, type(None))):
        raise BadMessage("The field `id` is neither a number nor a text.")
    message["type"] = message["type"].lower()
    return list(dict.fromkeys(found))


def body_of(message: Any) -> dict[str, Any]:
    """The body, an empty one where there is none."""
    body = message.get("body") if isinstance(message, dict) else None
    return body if isinstance(body, dict) else {}


def code_of(message: Message) -> int:
    """The code of an answer: 200 for "2XX", 500 for one that has none that can be read."""
    code = body_of(message).get("code")
    if isinstance(code, str):
        text = code.upper()
        if len(text) == 3 and text.endswith("XX") and text[0] in "12345":
            return int(text[0]) * 100
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else 500
    if isinstance(code, float):  # such as 1e999, which is JSON and no number
        return int(code) if code.is_integer() else 500
    return code if isinstance(code, int) and not isinstance(code, bool) else 500


def is_final(code: int) -> bool:
    """Whether an answer of this code ends the wait for it."""
    return code >= _ENDED


def without_marks(message: Message) -> Message:
    """The message without the marks that only the runtime's own node, or the runtime, may set."""
    body = body_of(message)
    if not any(mark in body for mark in _MARKS):
        return message
    return {**message, "body": {key: body[key] for key in body if key not in _MARKS}}


def is_answerable(message: Message) -> bool:
    """Whether the sender is told that the message could not be delivered."""
    if message["type"] == "response":
        return False
    to = message["to"]
    return not (message["type"] == "update" and isinstance(to, str) and to.endswith(EVENTS))


def answer_to(request: Message, code: int, text: str) -> Message:
    """An answer of the runtime itself: the words under both keys that readers look for."""
    to = request["to"]
    return {
        "id": request.get("id"),
        "type": "response",
        "from": to if isinstance(to, str) else to[0],
        "to": request["from"],
        "body": {"code": code, "desc": text, "description": text},
    }
