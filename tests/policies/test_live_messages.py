"""Looking at the messages that pass now, at the sockets of a real tail."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from django.urls import reverse

from msgnode.core.record import Outcome, TrafficRecord
from msgnode.monitoring.tail import Tail
from policies.authoring.live_messages import messages_now

RECORD = TrafficRecord(
    1.0, "s", "7", "create", "hyperty://a.com/1", "hyperty://b.com/2", 99, 1, Outcome.DELIVERED
)
BODY = b'{"value":{"name":"secret","number":3}}'


@pytest.fixture
def folder(settings):
    """Short: the name of a socket has few bytes."""
    with tempfile.TemporaryDirectory() as short:
        settings.DATA_DIR = Path(short)
        yield Path(short)


async def watched(folder):
    """What is seen while one message passes as soon as somebody looks."""
    attached = asyncio.Event()
    taps = []

    def attach(tap):
        taps[:] = [tap] if tap else []
        if tap:
            attached.set()

    tail = Tail(folder, "w", attach)
    await tail.start()
    looking = asyncio.create_task(asyncio.to_thread(messages_now, 10.0, 1))
    await attached.wait()
    taps[0](RECORD, BODY)
    seen = await looking
    await tail.stop()
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    return seen


def test_a_message_that_passes_is_seen_as_the_playground_takes_it(folder):
    (message,) = asyncio.run(watched(folder))
    assert json.loads(json.dumps({**message, "id": 0})) == {
        "id": 0,
        "type": "create",
        "from": "hyperty://a.com/1",
        "to": "hyperty://b.com/2",
        "body": {"value": {"name": "…", "number": 3}},
    }


def test_texts_are_shown_where_the_decision_log_shows_them(folder, settings):
    settings.POLICY = {**settings.POLICY, "LOG_MASKS_BODIES": False}
    (message,) = asyncio.run(watched(folder))
    assert message["body"]["value"]["name"] == "secret"


def test_what_a_killed_worker_left_behind_and_no_worker_at_all_are_no_messages(folder):
    assert messages_now() == []
    (folder / "tail.token").write_text("t")
    (folder / "tail-1.sock").touch()
    assert messages_now() == []


@pytest.mark.django_db
def test_the_playground_takes_a_message_that_passed(admin_client, folder):
    address = reverse("admin:policies_playground")
    page = admin_client.get(address, {"watch": "1"}).content.decode()
    assert "No message passed" in page
    form = admin_client.post(address, {"take": '{"id":7,"to":"b"}'}).context["form"]
    assert form["message"].value() == '{\n  "id": 7,\n  "to": "b"\n}'
    assert not form.is_bound
