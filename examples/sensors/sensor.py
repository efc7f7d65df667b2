"""A simulated sensor, and its dashboard: python sensor.py NAME [http://127.0.0.1:8000]."""

import asyncio
import itertools
import math
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hyperty_runtime import Refusal, Runtime, Settings, Syncher

NAME = sys.argv[1] if len(sys.argv) > 1 else "kitchen"
NODE = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000"
PORT = 8080  # of the dashboard


def serve() -> None:
    """Serve the page, unless another sensor does."""
    pages = partial(SimpleHTTPRequestHandler, directory=str(Path(__file__).parents[1]))
    try:
        server = ThreadingHTTPServer(("127.0.0.1", PORT), pages)
    except OSError:
        return
    threading.Thread(target=server.serve_forever, daemon=True).start()


async def main() -> None:
    """Measure until it is stopped."""
    async with Runtime(Settings("localhost", catalogues={"localhost": NODE})) as runtime:
        await runtime.log_in()
        hyperty = await runtime.hyperty(NAME, register=f"sensor-{NAME}", resources=["temperature"])
        sensor = await Syncher(runtime, hyperty.url).create({"values": [], "every": 1.0})

        def set_pace(value: Any, message: Any) -> None:
            if not isinstance(value, (int, float)) or not 0.1 <= value <= 60:
                raise Refusal(400, "A value each 0.1 to 60 seconds.")
            sensor.data["every"] = value

        hyperty.on("read", lambda value, message: sensor.url)
        hyperty.on("update", set_pace)
        serve()
        print(f"{NAME} measures: http://127.0.0.1:{PORT}/sensors/?node={NODE}", flush=True)
        for number in itertools.count():
            sensor.data["values"].append(round(21 + 2 * math.sin(number / 10), 1))  # °C
            if number >= 60:
                del sensor.data["values"][0]
            await asyncio.sleep(sensor.data["every"])


asyncio.run(main())
