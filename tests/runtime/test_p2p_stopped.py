"""A runtime that is stopped while its channel is in use, and goes on: case P55."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.node import Node

from .p2p_pages import InProcess, Talker, ask, browser, connect, talker, until, ways

__all__ = ["browser"]
pytest.importorskip("aiortc")
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("p2p")]

BRISK = {"ping": 0.5, "dead": 4.0, "resume": 2.0, "answer": 2.0, "setUp": 10.0, "quarantine": 1.0}


def words(one: Talker) -> list[str]:
    return [word for _, word, _ in one.do("states")]


def test_case_p55_who_is_stopped_is_dialled_again_until_he_goes_on(
    browser: Any, node: Node
) -> None:
    with (
        talker("chromium", browser, node, BRISK) as one,
        talker("python", browser, node, {"dead": 4.0}) as other,
    ):
        assert isinstance(other, InProcess)
        connect(one, other)
        before = words(one).count("live")
        os.kill(other.pid, signal.SIGSTOP)
        try:
            until(lambda: "disconnected" in words(one), one)
            one.do("tell", other.named["url"], 10)  # they wait at the node
            until(lambda: "failed" in words(one), one)
        finally:
            os.kill(other.pid, signal.SIGCONT)
        until(lambda: words(one).count("live") > before, one)  # no message has asked for it
        until(lambda: other.do("heard")["count"] == 10, one)
        assert other.do("heard")["isInOrder"]
        until(lambda: ways(one, other) == ["channel", "channel"], one, other)
        assert "/p2prequester/" in ask(one, other, 1)["cameBy"]
