"""The recorder: takes rows from the message path at once and writes them from a thread of its own.

    note ─► columns in memory ─► one Parquet file per hour and flush
    held:   ◄─── at most `buffer_rows` ───►

- `note` adds to the columns and returns; it never waits or fails, nor touches a disk.
- The recorder's thread takes the columns away whole, when no row is half in them, and leaves empty
  ones. What it does with them is Arrow's, without the interpreter that the event loop needs.
- What cannot be written is kept and tried again as it was; when the buffer is full, rows are lost
  and counted: noted = written + lost + held, always. An alarm stands while rows cannot be written.
- A crash loses what was noted since the last flush, `flush_seconds` at most and its own duration.
- Arrow is loaded by this thread with the first rows: a worker that nobody uses does without.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from msgnode.core.record import SessionRecord
from msgnode.traffic.row_buffer import Columns, RowBuffer

if TYPE_CHECKING:
    import pyarrow as pa

    from msgnode.traffic.files import RecordFiles

logger = logging.getLogger(__name__)

ALARM = "record-not-written"
_LOOK_SECONDS = 0.5
_ALARM_EVERY = 30.0


def raw_url(url: str) -> str:
    """The location of the raw rows of a record."""
    return f"{url.rstrip('/')}/raw"


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Where the record is written, how often, and how much of it."""

    url: str
    flush_seconds: float = 3.0
    buffer_rows: int = 200_000
    max_bytes: int = 20 * 1024**3
    min_free: int = 512 * 1024**2
    pseudonym_key: bytes = b""


class ParquetRecorder:
    """Writes the record in a thread of its own.

    `raise_alarm(kind, subject, text)` and `clear_alarm(kind, subject)` are called from that thread.
    """

    def __init__(
        self,
        options: RecordOptions,
        *,
        node: str,
        worker: str,
        raise_alarm: Callable[[str, str, str], object],
        clear_alarm: Callable[[str, str], object],
    ) -> None:
        self._options = options
        self._node = node
        self._worker = worker
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._buffer = RowBuffer(options.buffer_rows)
        self.note = self._buffer.note  # the way in, of the thread that carries messages
        self.note_session = self._buffer.note_session
        self._unwritten: dict[int, pa.Table] = {}
        self._begun: dict[int, pa.Table] = {}  # whose write failed, and is repeated as it was
        self._stop = threading.Event()
        if "://" in options.url:
            _ = self._files  # a store that cannot be opened is said at the start
        self._thread = threading.Thread(target=self._run, name="traffic-record", daemon=True)
        self._alarm_at = float("-inf")
        self._may_stand = True  # an alarm, perhaps of the process before this one
        self._lost_told = 0
        self._lost_seen = 0
        self._files_seen = 0
        self._works = False  # a file was written since the last fault
        self._dropped = 0
        self.written = 0
        self.files = 0
        self.fault = ""

    # --- anybody ------------------------------------------------------------------------------
    @property
    def lost(self) -> int:
        """Rows that were noted and will never be in the record."""
        return self._buffer.turned_away + self._dropped

    @property
    def held(self) -> int:
        """Rows noted and not yet written."""
        return self._buffer.noted - self.written - self._dropped

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float = 10.0) -> None:
        """Write what is held and end. Rows that cannot be written by then are lost and counted."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if self._thread.is_alive():
            logger.error("traffic record ended during a write", extra={"rows": self.held})

    # --- the recorder's thread ----------------------------------------------------------------
    @cached_property
    def _files(self) -> RecordFiles:
        from msgnode.traffic.files import RecordFiles  # with Arrow

        options = self._options
        return RecordFiles(
            options.url,
            self._worker or "worker",
            max_bytes=options.max_bytes,
            min_free=options.min_free,
        )

    def _run(self) -> None:
        options = self._options
        look_seconds = min(_LOOK_SECONDS, options.flush_seconds)
        flushed_at = time.monotonic()
        while not self._stop.wait(look_seconds):
            is_due = time.monotonic() + look_seconds > flushed_at + options.flush_seconds
            if is_due or len(self._buffer) > options.buffer_rows // 2:
                self.flush()
                flushed_at = time.monotonic()
        self.flush()
        unwritten = self.held
        if unwritten:
            self._drop(unwritten)
            logger.error("traffic record ended with rows unwritten", extra={"rows": unwritten})

    def flush(self) -> None:
        """Write all rows there are, a file for each hour; keep what cannot be written."""
        self._collect()
        try:
            self._write()
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"
        else:
            self.fault = ""
        self._tell()

    def _collect(self) -> None:
        """Add what was noted since the last time to the tables that are to be written."""
        columns, sessions = self._buffer.take()
        if columns:
            self._add(columns)
        if sessions:
            self._add(sessions)

    def _add(self, rows: Columns | list[SessionRecord]) -> None:
        try:
            from msgnode.traffic.columns import hours_of, messages_table, sessions_table
            from msgnode.traffic.pseudonyms import pseudonymised

            table_of = messages_table if isinstance(rows, Columns) else sessions_table
            table = table_of(rows, self._node, self._worker)  # type: ignore[arg-type]
            if self._options.pseudonym_key:
                table = pseudonymised(table, self._options.pseudonym_key)
            parts = hours_of(table)
        except Exception:  # rows that do not fit, or no memory for them: the thread goes on
            self._drop(len(rows))
            logger.exception("traffic rows do not fit the record")
            return
        for hour, part in parts.items():
            before = self._unwritten.get(hour)
            if before is not None:
                import pyarrow as pa

                part = pa.concat_tables([before, part], promote_options="default")
            self._unwritten[hour] = part

    def _write(self) -> None:
        """Each hour by itself; then raises what the last one failed with, if one did."""
        fault: Exception | None = None
        for hour in sorted(self._begun.keys() | self._unwritten.keys()):
            try:
                self._write_hour(hour)
            except Exception as error:  # whatever it is, the rows are kept and the thread goes on
                fault = error
        if fault is not None:
            raise fault

    def _write_hour(self, hour: int) -> None:
        """What was begun comes first, without the rows that came since: those are another file."""
        for waiting in (self._begun, self._unwritten):
            if hour not in waiting:
                continue
            rows = len(waiting[hour])
            try:
                self._files.write(hour, waiting[hour])
            except Exception:
                if self._files.is_begun(hour):
                    self._begun[hour] = waiting.pop(hour)
                raise
            del waiting[hour]
            self.written += rows
            self._buffer.released(rows)
            self.files += 1

    def _drop(self, rows: int) -> None:
        self._dropped += rows
        self._buffer.released(rows)

    def _tell(self) -> None:
        """Raise, repeat or clear the alarm. What goes wrong with that must not end the thread."""
        now = time.monotonic()
        if self.fault:
            self._works = False
        elif self.files > self._files_seen:
            self._works = True
        self._files_seen = self.files
        has_lost, self._lost_seen = self.lost > self._lost_seen, self.lost
        try:
            if self.fault or has_lost:
                if now - self._alarm_at >= _ALARM_EVERY:
                    self._alarm(now)
            elif self._may_stand and self._works:
                if self.lost > self._lost_told:
                    self._alarm(now)  # the final number stays in the list of alarms
                self._clear_alarm(ALARM, self._node)
                self._may_stand = False
        except Exception:
            logger.exception("the record's alarm could not be told")

    def _alarm(self, now: float) -> None:
        text = f"{self.lost} rows lost so far, {self.held} held. {self.fault}"
        self._raise_alarm(ALARM, self._node, text.strip()[:500])
        self._alarm_at, self._may_stand, self._lost_told = now, True, self.lost
