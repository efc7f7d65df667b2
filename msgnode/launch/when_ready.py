"""A command that is run once the node is ready: `make run` has Spark installed then."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable

VARIABLE = "NODE_WHEN_READY"
NICENESS = 10
_END_SECONDS = 5.0


class WhenReady:
    """At most one command, whose end is said; it does not outlive the node's launcher.

    Args:
        command: as a shell would have it, without a shell's signs; "" for none.
        say: one line for whoever reads along.
    """

    def __init__(self, command: str, say: Callable[[str], None]) -> None:
        self._words = shlex.split(command)
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of_environment(cls, say: Callable[[str], None]) -> WhenReady:
        """The command of the environment, which what is started does not inherit."""
        return cls(os.environ.pop(VARIABLE, ""), say)

    def start(self) -> None:
        """Begin, with less right to the processor than the node."""
        if not self._words:
            return
        self._say(f"in the background: {shlex.join(self._words)}, for reports")
        try:
            self._process = subprocess.Popen(  # noqa: S603  (make's own words)
                ["nice", "-n", str(NICENESS), *self._words],  # noqa: S607
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            self._say(f"{shlex.join(self._words)}: {error}")

    def look(self) -> None:
        """Say how it ended, once."""
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
        """End it; what was begun is taken up again at the next start."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
