"""Carries the messages that a device posts, one or a list, in order, and answers with the results.

One message   the status is its response's code; 202 if the response will come later, or none will
A list        207 with `{id, code, message?}` for each, in the order given
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage, NodeError, Unavailable
from msgnode.core.messages import Message
from msgnode.sessions.frame_connection import Carried, Refused

from .devices import Device
from .http import TooLarge, encode, problem
from .idempotency import Answer
from .link import read

MAX_MESSAGES = 100
Outcome = NodeError | Carried


async def post(
    device: Device, body: bytes, seconds: float, expects: bool = True, traceparent: str = ""
) -> Answer:
    """Carry what was posted; waits at most `seconds` for responses.

    If it `expects` none, all responses are events, in their order among these. `traceparent` is
    that of the request.

    Raises:
        NodeError: nothing of it was carried.
    """
    until = asyncio.get_running_loop().time() + seconds
    start = body.lstrip()[:1]
    if start == b"[":
        frames = _list(body)
        async with device.order:
            outcomes = [await _carry(device, frame, expects, traceparent) for frame in frames]
        answers = [await _answer_of(device, each, until) for each in outcomes]
        listed = [_entry(outcome, *each) for outcome, each in zip(outcomes, answers, strict=True)]
        return Answer(207, encode(listed))
    async with device.order:
        outcome = await _carry(device, body, expects, traceparent)
    code, response = await _answer_of(device, outcome, until)
    if isinstance(outcome, NodeError):
        raise outcome
    if response is None and code >= 400:
        raise Unavailable("The session ended or moved before the response came.")
    if response is None:
        return Answer(202, encode({"id": msgspec.Raw(outcome.message.id or b'""')}))
    if code >= 400:
        refusal = Refused(code, str(response.fields().get("description", "")))
        return Answer(code, problem(code, refusal, response.frame), is_problem=True)
    return Answer(200, response.frame)


def body_of(frame: bytes) -> bytes:
    """The body of a response, as JSON text."""
    return messages.parse(frame).body


def _list(body: bytes) -> list[bytes]:
    try:
        frames = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadMessage(f"The body is no list of messages: {error}") from None
    if len(frames) > MAX_MESSAGES:
        raise TooLarge(f"A request may have {MAX_MESSAGES} messages.")
    return [bytes(frame) for frame in frames]


async def _carry(device: Device, frame: bytes, expects: bool, traceparent: str) -> Outcome:
    connection = device.connection
    try:
        message = read(frame)
        return await connection.carry_through(message, expects, traceparent)
    except InvalidFrame as fault:
        return await connection.carry_invalid(frame, fault)
    except NodeError as error:
        return error


async def _answer_of(device: Device, outcome: Outcome, until: float) -> tuple[int, Message | None]:
    """The code of a message, and its response if it has come."""
    if isinstance(outcome, NodeError):
        return outcome.code, None
    try:
        response = await device.connection.response(outcome, until)
    except NodeError as error:
        return error.code, None
    if response is None:
        return 202, None
    try:
        code = response.fields().get("code")
    except BadMessage:  # its sender's business: it is passed on as it came
        code = 200
    return (code if isinstance(code, int) and 400 <= code <= 599 else 200), response


def _entry(outcome: Outcome, code: int, response: Message | None) -> dict[str, Any]:
    """One line of the answer to a list."""
    if isinstance(outcome, NodeError):
        id_ = outcome.id if isinstance(outcome, InvalidFrame) else b""
        return {
            "id": msgspec.Raw(id_ or b"null"),
            "code": code,
            "detail": outcome.description,
        }
    entry: dict[str, Any] = {"id": msgspec.Raw(outcome.message.id or b"null"), "code": code}
    if response is not None:
        entry["message"] = msgspec.Raw(response.frame)
    return entry
