"""Runs a command once the node is ready: `make run` installs Spark then."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

VARIABLE = "NODE_WHEN_READY"
NICENESS = 10
_END_SECONDS = 5.0


class WhenReady:
    """At most one command, whose end is reported.

    Neither it nor what it has started outlives the launcher.

    Args:
        command: a command line without shell syntax; "" for none.
        say: prints one line for the user.
    """

    def __init__(self, command: str, say: Callable[[str], None]) -> None:
        self._words = shlex.split(command)
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of_environment(cls, say: Callable[[str], None]) -> WhenReady:
        """The command in the environment, which the started programs do not inherit."""
        return cls(os.environ.pop(VARIABLE, ""), say)

    def start(self) -> None:
        """Start it, with lower priority than the node."""
        if not self._words:
            return
        self._say(f"in the background: {shlex.join(self._words)}, for reports")
        try:
            self._process = subprocess.Popen(  # noqa: S603  (make's own words)
                ["nice", "-n", str(NICENESS), *self._words],  # noqa: S607
                stdin=subprocess.DEVNULL,
                process_group=0,  # ends as a whole: make would leave the installer behind
            )
        except OSError as error:
            self._say(f"{shlex.join(self._words)}: {error}")

    def look(self) -> None:
        """Report once how it ended."""
        process = self._process
        if process is None or process.poll() is None:
            return
        self._process = None
        if process.returncode:
            words = shlex.join(self._words)
            self._say(f"{words} ended with {process.returncode}: there are no reports before it")
        else:
            self._say("reports can be made")

    def stop(self) -> None:
        """End it; it continues at the next start."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
