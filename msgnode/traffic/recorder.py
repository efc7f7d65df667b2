"""The recorder: takes rows from the message path at once and writes them from a thread of its own.

    note ─► rows (bounded) ─► columns, in small steps ─► one Parquet file per hour and flush
    held:   ◄──────────────── at most `buffer_rows` ────────────────►

- `note` appends to a deque and returns; it never waits, fails or touches a disk.
- Rows turn into columns a few hundred at a time; the thread lets the event loop run in between.
- What cannot be written is kept and tried again; when the buffer is full, rows are lost and
  counted: noted = written + lost + held, always. An alarm stands while rows cannot be written.
- A crash loses what was noted since the last flush, `flush_seconds` at most and its own duration.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from msgnode.core.record import TrafficRecord
from msgnode.traffic.columns import Repeated, batch_of, hours_of, stored_table
from msgnode.traffic.files import RecordFiles
from msgnode.traffic.pseudonyms import pseudonymised

logger = logging.getLogger(__name__)

ALARM = "record-not-written"
_STEP_ROWS = 256
_STEP_SECONDS = 0.2
_ALARM_EVERY = 30.0


@dataclass(frozen=True, slots=True)
class RecordOptions:
    url: str
    flush_seconds: float = 3.0
    buffer_rows: int = 200_000
    max_bytes: int = 20 * 1024**3
    min_free: int = 512 * 1024**2
    pseudonym_key: bytes = b""


class ParquetRecorder:
    """`raise_alarm(kind, subject, text)` and `clear_alarm(kind, subject)` are called from the
    recorder's thread."""

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
        self._files = RecordFiles(
            options.url, worker or "worker", max_bytes=options.max_bytes, min_free=options.min_free
        )
        self._rows: deque[TrafficRecord] = deque()
        self._room = options.buffer_rows
        self._batches: list[pa.RecordBatch] = []
        self._repeated = Repeated()
        self._unwritten: dict[int, pa.Table] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic-record", daemon=True)
        self._alarm_at = float("-inf")
        self._may_stand = True  # an alarm, perhaps of the process before this one
        self._lost_told = 0
        self._lost_seen = 0
        self._files_seen = 0
        self._works = False  # a file was written since the last fault
        self._turned_away = 0  # counted where rows are noted
        self._dropped = 0  # counted by the recorder's thread
        self.written = 0
        self.files = 0
        self.fault = ""

    # --- the message path ---------------------------------------------------------------------
    def note(self, record: TrafficRecord) -> None:
        rows = self._rows
        if len(rows) < self._room:
            rows.append(record)
        else:
            self._turned_away += 1

    # --- anybody ------------------------------------------------------------------------------
    @property
    def lost(self) -> int:
        """Rows that were noted and will never be in the record."""
        return self._turned_away + self._dropped

    @property
    def held(self) -> int:
        """Rows noted and not yet written."""
        return len(self._rows) + self._options.buffer_rows - self._room

    @property
    def used_bytes(self) -> int:
        return self._files.used()

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float = 10.0) -> None:
        """Write what is held and end. Rows that cannot be written by then are lost and counted."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    # --- the recorder's thread ----------------------------------------------------------------
    def _run(self) -> None:
        flush_at = time.monotonic() + self._options.flush_seconds
        while not self._stop.wait(_STEP_SECONDS):
            self.take()
            if time.monotonic() >= flush_at:
                self.flush()
                flush_at = time.monotonic() + self._options.flush_seconds
        self.take()
        self.flush()
        unwritten = self.held
        if unwritten:
            self._dropped += unwritten
            self._rows.clear()
            self._room = self._options.buffer_rows
            logger.error("traffic record ended with rows unwritten", extra={"rows": unwritten})

    def take(self) -> None:
        """Turn the rows that are there now into columns."""
        for _ in range(0, len(self._rows), _STEP_ROWS):
            step = min(len(self._rows), _STEP_ROWS)
            self._room -= step
            rows = [self._rows.popleft() for _ in range(step)]
            try:
                self._batches.append(batch_of(rows, self._repeated))
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                self._take_singly(rows)
            time.sleep(0)  # lets the event loop have the interpreter

    def _take_singly(self, rows: list[TrafficRecord]) -> None:
        """Keep the good rows of a step that has a bad one."""
        for row in rows:
            try:
                self._batches.append(batch_of([row], self._repeated))
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                self._dropped += 1
                self._room += 1
                logger.exception("a traffic row does not fit the record")

    def flush(self) -> None:
        """Write all columns there are, a file for each hour; keep what cannot be written."""
        try:
            self._write()
        except (OSError, pa.ArrowException) as error:
            self.fault = f"{type(error).__name__}: {error}"
        else:
            self.fault = ""
        self._tell()

    def _write(self) -> None:
        if self._batches:
            table = stored_table(self._batches, self._repeated, self._node, self._worker)
            if self._options.pseudonym_key:
                table = pseudonymised(table, self._options.pseudonym_key)
            for hour, part in hours_of(table).items():
                before = self._unwritten.get(hour)
                self._unwritten[hour] = part if before is None else pa.concat_tables([before, part])
            self._batches.clear()
            self._repeated = Repeated()
        for hour in sorted(self._unwritten):
            rows = len(self._unwritten[hour])
            self._files.write(hour, self._unwritten[hour])
            del self._unwritten[hour]
            self._room += rows
            self.written += rows
            self.files += 1

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
