"""The broker in files: what a full disk or a kill left there ends no worker and no start.

Of tasks that no worker takes, only so many are sent, also with a Redis.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kombu import Connection, Exchange, Queue
from kombu.exceptions import ChannelError, OperationalError
from kombu.simple import SimpleQueue

from msgnode import celery
from tests.e2e.test_full_disk import fill, small_disk  # noqa: F401  (a fixture)


@pytest.fixture
def tasks(tmp_path: Path) -> Queue:
    """A queue; kombu knows for the life of a process which names are bound."""
    name = f"tasks-{abs(hash(tmp_path))}"
    return Queue(name, Exchange(name), routing_key=name)


URL, TRANSPORT = "filesystem://localhost//", "msgnode.file_broker:Transport"


def connection(place: Path) -> Connection:
    return Connection(URL, transport=TRANSPORT, transport_options=options(place))


def options(place: Path) -> dict[str, str]:
    (place / "queue").mkdir(parents=True, exist_ok=True)
    return {
        "data_folder_in": str(place / "queue"),
        "data_folder_out": str(place / "queue"),
        "control_folder": str(place / "control"),
    }


@pytest.fixture
def queue(tmp_path: Path, tasks: Queue) -> Iterator[SimpleQueue]:
    with connection(tmp_path) as opened, opened.SimpleQueue(tasks) as queue:
        yield queue


@pytest.mark.parametrize("left", ["", '{"body": "gAJ9', "[1, 2"])
def test_a_message_that_was_cut_is_passed_over(
    queue: SimpleQueue, tasks: Queue, tmp_path: Path, left: str
) -> None:
    queue.put({"number": 1})
    (tmp_path / "queue" / f"0_cut.{tasks.name}.msg").write_text(left)
    message = queue.get(timeout=5)
    assert message.payload == {"number": 1}
    message.ack()
    with pytest.raises(queue.Empty):
        queue.get_nowait()


def test_a_table_that_was_cut_is_made_anew(tasks: Queue, tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / f"{tasks.name}.exchange").write_text('[["tas')
    with connection(tmp_path) as opened, opened.SimpleQueue(tasks) as again:
        again.put({"number": 2})
        assert again.get(timeout=5).payload == {"number": 2}


def test_a_full_disk_leaves_nothing_and_what_comes_afterwards_arrives(
    small_disk: Path,  # noqa: F811
    tasks: Queue,
) -> None:
    with connection(small_disk) as opened, opened.SimpleQueue(tasks) as queue:
        filler = fill(small_disk)
        for _ in range(3):
            with pytest.raises(ChannelError):
                queue.put({"text": "x" * 100_000})
        assert list((small_disk / "queue").iterdir()) == []
        filler.unlink()
        queue.put({"number": 3})
        assert queue.get(timeout=5).payload == {"number": 3}


def test_tasks_that_nobody_takes_are_refused_once_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"broker_transport": TRANSPORT, "broker_transport_options": options(tmp_path)}
    assert_bounded(monkeypatch, broker_url=URL, **settings)


def test_tasks_that_nobody_takes_are_refused_with_a_redis_too(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_bounded(monkeypatch, **celery.of_redis(redis_url))


def assert_bounded(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    monkeypatch.setattr(celery, "MOST_WAITING", 3)
    with celery.BoundedCelery(set_as_current=False) as app:
        queue = f"bounded-{uuid4()}"
        app.conf.update(task_default_queue=queue, **settings)
        for _ in range(3):
            app.send_task("any", retry=False)
        with pytest.raises(OperationalError, match="3 tasks wait"):
            app.send_task("any", retry=False)
        with app.connection() as opened, opened.SimpleQueue(queue) as waiting:
            waiting.get(timeout=5).ack()
        app.send_task("any", retry=False)
