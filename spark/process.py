"""The process of a run: started in a process group, watched, and ended as a group.

The JVM lives only there. The group has the other end of a pipe: if this process dies, the group
reads its end and ends too.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from msgnode.core.priority import lower_priority

WATCH_SECONDS = 1.0
_ERROR_BYTES = 4_000
_LOG_BYTES = 256 * 1024
_FRAME = re.compile(r"\s+at [\w.$<>/]+\(.*\)$|\s*\.\.\. \d+ more$|\t")


class Ended(Exception):
    """The process ended without a result: why, stands in the text."""


class Cancelled(Ended):
    """Somebody asked for it to end."""


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    time_limit: float,
    niceness: int,
    watch: Callable[[float | None, str], bool],
) -> None:
    """Run to its end.

    Args:
        command: the program and its arguments.
        environment: its whole environment.
        log: the file that takes what it says.
        time_limit: seconds after which it is ended.
        niceness: 0 to 19: its niceness towards other sessions.
        watch: called about every second with the progress and the step, None and "" if nothing was
            said; answers whether the run goes on.

    Raises:
        Ended: the run did not get to its end.
    """
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 (our own program and settings of the operator)
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    is_lowered = lower_priority(process.pid, niceness)
    said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    assert process.stdout is not None  # noqa: S101 (for the type checker: it is a PIPE)
    threading.Thread(target=_listen, args=(process.stdout, said), daemon=True).start()
    deadline = time.monotonic() + time_limit
    try:
        while process.poll() is None:
            is_lowered = is_lowered or lower_priority(process.pid, niceness)
            progress, step = _next(said)
            if not watch(progress, step):
                raise Cancelled("cancelled")
            if time.monotonic() > deadline:
                raise Ended(f"took longer than its {time_limit:g} s")
    finally:
        end_group(process)
    if process.returncode:
        raise Ended(f"ended with {process.returncode}: {tail(log)}")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and all it started. Jobs leave no half result, so at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # a pipe that broke is closed too
                stream.close()


def tail(log: Path) -> str:
    """The last lines of what a process complained about, without the frames of Java's stacks."""
    text = log.read_bytes()[-_LOG_BYTES:].decode(errors="replace")
    lines = [line for line in text.splitlines() if not _FRAME.match(line)]
    return "\n".join(lines).strip()[-_ERROR_BYTES:]


def _listen(stream: IO[bytes], said: queue.SimpleQueue[bytes]) -> None:
    try:
        for line in stream:
            said.put(line)
    except ValueError:
        return  # closed while reading: the process is over


def _next(said: queue.SimpleQueue[bytes]) -> tuple[float | None, str]:
    try:
        line = said.get(timeout=WATCH_SECONDS)
        spoken = json.loads(line)
        return float(spoken["progress"]), str(spoken["step"])[:100]
    except (queue.Empty, ValueError, KeyError, TypeError):
        return None, ""
