"""Follow messages as they pass through the node of this DATA_DIR."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from msgnode.console.command_base import Tool, could_not_be_done
from msgnode.core.message_types import TYPES
from msgnode.core.record import OTHER_TYPE, Outcome

_LONGEST_LINE = 64 * 1024 * 1024


class Command(Tool):
    help = (
        "Follow messages: one line for each recipient of each message, without bodies unless asked "
        "for. Ends with Ctrl-C, with the node, or after --count messages."
    )
    example = (
        "  manage.py node_tail --address comm://localhost/ --type update\n"
        "  manage.py node_tail --outcome undeliverable refused blocked --json"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--address", default="", help="only messages from or to this address, or one below it"
        )
        parser.add_argument("--type", nargs="+", default=[], choices=[*sorted(TYPES), OTHER_TYPE])
        parser.add_argument("--outcome", nargs="+", default=[], choices=[*map(str, Outcome)])
        parser.add_argument("--bodies", action="store_true", help="show the bodies of messages")
        parser.add_argument("--count", type=int, default=0, help="end after this many messages")

    def handle(self, *_args: Any, **options: Any) -> None:
        folder: Path = settings.DATA_DIR
        asked = {
            "token": _token(folder),
            "address": options["address"],
            "types": options["type"],
            "outcomes": options["outcome"],
            "bodies": options["bodies"],
        }
        paths = sorted(folder.glob("tail-*.sock"))
        with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
            asyncio.run(self._follow(paths, asked, options))

    async def _follow(
        self, paths: list[Path], asked: dict[str, Any], options: dict[str, Any]
    ) -> None:
        seen = 0
        async with contextlib.aclosing(_lines(paths, asked)) as lines:
            async for line in lines:
                self._say(line, options["json"])
                seen += "at" in line
                if options["count"] and seen >= options["count"]:
                    return

    def _say(self, line: dict[str, Any], as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(line, ensure_ascii=False))
        elif "at" not in line:
            self.stderr.write(", ".join(f"{key}: {value}" for key, value in line.items()))
        else:
            moment = datetime.fromtimestamp(line["at"], UTC).strftime("%H:%M:%S.%f")[:-3]
            code = f" {line['code']}" if line["code"] else ""
            self.stdout.write(
                f"{moment} {line['outcome'] + code:<13} {line['type']:<11} {line['sender']} → "
                f"{line['to']} ({line['size']} B, {line['latency'] * 1000:.2f} ms)"
            )
            if "body" in line:
                self.stdout.write(f"    {json.dumps(line['body'], ensure_ascii=False)}")
        self.stdout.flush()


def _token(folder: Path) -> str:
    try:
        return (folder / "tail.token").read_text()
    except OSError as fault:
        raise could_not_be_done(f"No node has run here: {fault}") from None


async def _lines(paths: list[Path], asked: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    """The lines of all workers, as they come."""
    queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(1000)
    sockets = [await _connected(path) for path in paths]
    open_ = [each for each in sockets if each is not None]
    if not open_:
        raise could_not_be_done("No node is running on this DATA_DIR.")

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(asked).encode() + b"\n")
        while line := await reader.readline():
            await queue.put(json.loads(line))
        await queue.put(None)

    jobs = [asyncio.create_task(read(*each)) for each in open_]
    try:
        left = len(jobs)
        while left:
            line = await queue.get()
            if line is None:
                left -= 1
            elif "error" in line:
                raise could_not_be_done(line["error"])
            else:
                yield line
    finally:
        for job in jobs:
            job.cancel()


async def _connected(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """A worker's socket; None if the worker was killed and left it behind."""
    try:
        return await asyncio.open_unix_connection(path, limit=_LONGEST_LINE)
    except OSError:
        return None
