"""The load generator, a process of its own: `python -m bench.generator PORT SERVER_PID`.

Takes one command a line on stdin (JSON: {"do": name, …}) and gives one result a line on stdout.
Sockets stay open between commands, so that servers can be measured in alternation. Every result
says how much processor the generator itself and the server used: a generator below 1.0 beside a
server at 1.0 was not the limit.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from typing import Any

import uvloop

from .loads.allocations import AllocationLoad
from .loads.asking import AskingLoad
from .loads.draining import DrainingLoad
from .loads.fan_out import FanOutLoad
from .loads.holding import HoldingLoad
from .loads.nats import NatsRelayLoad
from .loads.operations import OperationsLoad
from .loads.registrations import RegistrationLoad
from .loads.relay import AcrossLoad, LinkedLoad, RelayLoad
from .loads.resumption import ResumptionLoad
from .loads.varied import VariedLoad
from .processes import raise_file_limit


async def serve(port: int, server_pid: int) -> None:
    """Do what stdin says until it ends."""
    loads: dict[str, Any] = {
        "relay": RelayLoad(port, server_pid),
        "relay_across": AcrossLoad(port, server_pid),
        "relay_beside": LinkedLoad(port, server_pid),
        "relay_linked": LinkedLoad(port, server_pid),
        "relay_nats": NatsRelayLoad(port, server_pid),
        "fan_out": FanOutLoad(port, server_pid),
        "allocate": AllocationLoad(port, server_pid),
        "ask": AskingLoad(port, server_pid),
        "hold": HoldingLoad(port, server_pid),
        "operations": OperationsLoad(port, server_pid),
        "resume": ResumptionLoad(port, server_pid),
        "varied": VariedLoad(port, server_pid),
        "drain": DrainingLoad(port, server_pid),
        "register": RegistrationLoad(port, server_pid),
    }
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        command = json.loads(line)
        load = loads[command.pop("do")]
        try:
            result = await load.run(**command)
        except (OSError, ValueError, TimeoutError) as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    raise_file_limit()
    gc.disable()  # nothing here makes cycles worth a pause in the middle of a measurement
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
