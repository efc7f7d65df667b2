"""Celery's broker in files, for a node without Redis; a full disk does no harm.

kombu's own writes messages and its tables in place. On a full disk each task that could not be sent
left an empty or truncated message, and each of these ended the Celery worker that read it, with its
run of reports; a truncated table ended every start.
"""

from __future__ import annotations

import fcntl
import logging
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

from kombu.exceptions import ChannelError
from kombu.transport import filesystem
from kombu.utils.json import dumps

log = logging.getLogger(__name__)


class Channel(filesystem.Channel):
    """Messages and tables appear whole; those that are not are passed over."""

    # the library's own two classes name the message differently
    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]
        name = f"{round(monotonic() * 1000)}_{uuid4()}.{queue}.msg"
        _write(Path(self.data_folder_out, name), dumps(payload))

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        while True:
            try:
                return super()._get(queue)
            except ValueError:  # it is gone from the queue already
                log.exception("a waiting task cannot be read and is lost")

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        bound = filesystem.exchange_queue_t(routing_key or "", pattern or "", queue or "")
        self.control_folder.mkdir(parents=True, exist_ok=True)
        with (self.control_folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                table = self.get_table(exchange)
            except ValueError:
                log.exception("a table of the broker cannot be read, and is made anew")
                table = []
            if bound not in table:
                _write(self._exchange_file(exchange), dumps([bound, *table]))


class Transport(filesystem.Transport):
    """What Celery is told to use."""

    Channel = Channel


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises ChannelError."""
    partial = path.with_name(f"{path.name}.{uuid4()}.partial")
    try:
        partial.write_text(text)
        partial.replace(path)
    except OSError as fault:
        partial.unlink(missing_ok=True)
        raise ChannelError(f"{path} cannot be written: {fault}") from fault
