"""Protocol on the fly: from a domain to a stub that runs.

    descriptor -> source -> checks -> sandbox -> stub -> `created`

All checks come before anything of the stub runs. The home stub runs in this process if it is, to
the byte, the stub of this package; every other one gets a sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import protostub
from .catalogue import Catalogue, NoEntry
from .descriptor import Descriptor, DescriptorError, digest_of
from .fetch import FetchError
from .messages import Message
from .minibus import MiniBus
from .sandbox import Sandbox, SandboxError
from .settings import Settings

DIAL_SECONDS = 10.0
CONNECT_SECONDS = 30.0
STOP_SECONDS = 4.0

OnMessage = Callable[[Any], None]
OnEnd = Callable[[str], None]

log = logging.getLogger(__name__)


class LoadError(Exception):
    """A stub could not be loaded; `code` and text are the answer to who waits for it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class OwnStub:
    """The stub of this package, in this process."""

    url: str
    bus: MiniBus
    instance: protostub.Protostub
    is_ended: bool = False

    def post(self, message: Message) -> bool:
        """Hand it a message."""
        self.bus.deliver(message)
        return True

    async def connect(self, identity: Any = None) -> None:
        """Have it open its session, and wait for that, but not for ever."""
        with contextlib.suppress(TimeoutError):  # it goes on trying, and its status says so
            async with asyncio.timeout(CONNECT_SECONDS):
                await self.instance.connect(identity)
        await asyncio.sleep(0)  # its status is on its way

    async def stop(self) -> None:
        """Disconnect it."""
        await self.instance.disconnect()

    def kill(self, reason: str) -> None:
        """It is ours: there is nothing to kill."""


@dataclass(slots=True)
class SandboxedStub:
    """A stub in a sandbox of its own."""

    url: str
    sandbox: Sandbox

    @property
    def is_ended(self) -> bool:
        """Whether its sandbox has ended."""
        return self.sandbox.is_ended

    def post(self, message: Message) -> bool:
        """Hand it a message; False if its sandbox has ended."""
        return self.sandbox.post(self.url, message)

    async def connect(self, identity: Any = None) -> None:
        """Have it open its session. Raises SandboxError."""
        body = {"method": "connect", "url": self.url, "params": [identity] if identity else []}
        await self.sandbox.command("execute", body, CONNECT_SECONDS)

    async def stop(self) -> None:
        """Disconnect it, then end its sandbox."""
        try:
            await self.sandbox.command("delete", {"url": self.url}, STOP_SECONDS)
        except SandboxError as error:
            log.info("%s did not stop by itself: %s", self.url, error)
        self.sandbox.end("It is not needed any more.")

    def kill(self, reason: str) -> None:
        """End its sandbox at once."""
        self.sandbox.end(reason)


@cache
def own_digest() -> str:
    """The digest of the stub in this package; "" where its source cannot be read."""
    loader = getattr(protostub.__spec__, "loader", None)
    get_source = getattr(loader, "get_data", None)
    try:
        data = (
            get_source(protostub.__file__) if get_source else Path(protostub.__file__).read_bytes()
        )
    except OSError:
        return ""
    return digest_of(data.decode())


class Loader:
    """Loads stubs for one runtime."""

    def __init__(self, settings: Settings, runtime_url: str) -> None:
        self.catalogue = Catalogue(settings)
        self.sandboxes: set[Sandbox] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._settings = settings
        self._runtime_url = runtime_url

    async def fetch(self, domain: str, kind: str) -> tuple[Descriptor, str]:
        """Descriptor and source, both checked. Raises LoadError."""
        try:
            descriptor = await self.catalogue.descriptor(domain, kind)
            source = await self.catalogue.source(descriptor)
            descriptor.check_source(source)
        except NoEntry as error:
            raise LoadError(404, str(error)) from None
        except (DescriptorError, FetchError) as error:
            raise LoadError(error.code, str(error)) from None
        except ValueError as error:  # whatever it is that a stranger has written
            raise LoadError(502, f"The catalogue's entry cannot be read: {error}") from None
        return descriptor, source

    async def start(
        self, url: str, descriptor: Descriptor, source: str, on_message: OnMessage, on_end: OnEnd
    ) -> OwnStub | SandboxedStub:
        """Start a stub. It has not necessarily said `created` yet. Raises LoadError."""
        # What the runtime is called decides over what a descriptor says.
        chosen = self._settings.stub_config.get(descriptor.domain, {})
        config = {**descriptor.configuration, **chosen, "runtimeURL": self._runtime_url}
        is_home = descriptor.domain == self._settings.domain
        if (
            is_home
            and self._settings.home_in_process
            and descriptor.kind == "protocolstub"
            and digest_of(source) == own_digest()
        ):
            bus = MiniBus(on_message)
            return OwnStub(url, bus, protostub.Protostub(url, bus, config))
        return await self._sandboxed(url, descriptor, source, config, on_message, on_end)

    async def _sandboxed(
        self,
        url: str,
        descriptor: Descriptor,
        source: str,
        config: dict[str, Any],
        on_message: OnMessage,
        on_end: OnEnd,
    ) -> SandboxedStub:
        limits = self._settings.limits
        if len(self.sandboxes) >= limits.sandboxes:
            raise LoadError(503, f"This runtime has {limits.sandboxes} sandboxes already.")

        def ended(reason: str) -> None:
            self.sandboxes.discard(sandbox)
            task = asyncio.get_running_loop().create_task(sandbox.ended())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            on_end(reason)

        def dial(host: str, port: int) -> Any:
            return self._dial(descriptor, host, port)

        sandbox = Sandbox(limits, dial, lambda _, message: on_message(message), ended)
        self.sandboxes.add(sandbox)
        try:
            await sandbox.start()
            self._check_confinement(sandbox, descriptor)
            body = {"url": url, "sourceCode": source, "config": config}
            body["sourceCodeClassname"] = descriptor.class_name
            await sandbox.command("create", body, limits.start)
        except SandboxError as error:
            sandbox.end(str(error))
            code = 502 if error.code == 500 else error.code
            raise LoadError(
                code, f"The stub of {descriptor.domain} does not start: {error}"
            ) from None
        except BaseException:
            sandbox.end("It is not needed any more.")
            raise
        return SandboxedStub(url, sandbox)

    async def close(self) -> None:
        """End every sandbox, and wait until nothing of them is left."""
        for sandbox in tuple(self.sandboxes):
            sandbox.end("The runtime closes.")
        if self._ending:
            await asyncio.wait(self._ending)

    def _check_confinement(self, sandbox: Sandbox, descriptor: Descriptor) -> None:
        report = sandbox.report
        if report.get("confined"):
            return
        lacks = "; ".join(map(str, report.get("lacks", []))) or "nothing is known of its limits"
        text = f"The sandbox of {descriptor.domain} does not confine a stub here: {lacks}."
        if self._settings.sandbox == "required" and descriptor.domain != self._settings.domain:
            raise SandboxError(501, text)
        log.warning(text)

    async def _dial(self, descriptor: Descriptor, host: str, port: int) -> socket.socket:
        """A socket that is connected to the one place the stub may reach. Raises OSError."""
        if descriptor.endpoint != (host.lower(), port):
            raise ConnectionRefusedError(f"{host}:{port} is not what the descriptor names.")
        settings, domain = self._settings, descriptor.domain
        may_be_private = (
            settings.private_networks or domain == settings.domain or domain in settings.catalogues
        )
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DIAL_SECONDS):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            error: OSError = ConnectionRefusedError(f"{host} has no address.")
            for family, type_, protocol, _, address in found:
                if not may_be_private and not ipaddress.ip_address(address[0]).is_global:
                    error = ConnectionRefusedError(f"{host} has a private address.")
                    continue
                dialled = socket.socket(family, type_, protocol)
                dialled.setblocking(False)
                try:
                    await loop.sock_connect(dialled, address)
                except OSError as failed:
                    dialled.close()
                    error = failed
                except BaseException:
                    dialled.close()
                    raise
                else:
                    dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return dialled
            raise error
