"""Nodes that tests share: one for all that need no settings of their own."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_django
from django.conf import settings as django_settings
from django.test import Client as HttpClient
from hypothesis import settings

from msgnode.core.http_limits import HTTP_LIMITS
from tests.client import Client, runtime
from tests.databases import database
from tests.node import Node, running
from tests.restored import put_back_after_commits
from tests.template import migrated_database

Come = Callable[..., Awaitable[Client]]

FOR_ALL = ("idnode", "console", "attacked", "served")
"""Fixtures that start something for the tests of several files, besides `node`, which nearly all of
them use."""

settings.register_profile("default", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Of all tests in several processes: migrate the database that they copy while they are
    collected, instead of letting each process wait for it then."""
    config = session.config
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if is_whole and config.getoption("numprocesses", None):
        shared = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        threading.Thread(target=migrated_database, args=(shared,), daemon=True).start()


@pytest.fixture(autouse=True)
def fresh_limits() -> None:
    """No test leaves less of the limits of HTTP requests to the next."""
    HTTP_LIMITS.clear()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without rows, the same for all processes of a test run."""
    own = tmp_path_factory.getbasetemp()
    return migrated_database(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a migrated database on PostgreSQL, which tests copy and do not use."""
    with database(postgres_url) as url:
        Node(tmp_path_factory.mktemp("postgres"), DATABASE_URL=url).migrate()
        yield url


@pytest.fixture
def migrated_url(postgres_url: str, postgres_template: str) -> Iterator[str]:
    """The URL of a migrated database of the test's own, on PostgreSQL."""
    with database(postgres_url, postgres_template) as url:
        yield url


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Tests in this process work on a copy of the template, which is not migrated once more."""
    return _is_sqlite()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None, request: pytest.FixtureRequest
) -> None:
    if _is_sqlite():
        own = django_settings.DATABASES["default"]["TEST"]["NAME"]
        shutil.copy(request.getfixturevalue("template"), own)


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker
) -> Iterator[None]:
    """pytest-django's, and what a test has committed is undone by a copy of the database."""
    with ExitStack() as stack:
        if _is_sqlite():
            with django_db_blocker.unblock():
                stack.enter_context(put_back_after_commits())
        yield


def _is_sqlite() -> bool:
    return bool(django_settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        _keep_together(item)


def _keep_together(item: pytest.Item) -> None:
    """Tests that share what is started run in one process, which starts it, and not in each."""
    used = getattr(item, "fixturenames", ())
    shared = next((name for name in FOR_ALL if name in used), "") or _of_its_file(item)
    if shared and item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(shared))


def _of_its_file(item: pytest.Item) -> str:
    """The group of what shares a fixture of module scope in its file; "" for another test."""
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    is_shared = any(found[-1].scope == "module" for found in known.values() if found)
    return f"what {item.location[0]} shares" if is_shared else ""


@pytest.fixture
def operator(db: None, django_user_model: Any) -> HttpClient:
    """A superuser's browser, without a page."""
    client = HttpClient()
    client.force_login(django_user_model.objects.create_superuser("operator", password="let me in"))
    return client


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    """The shared node. Tests on it use runtime URLs of their own and leave it running."""
    with running(tmp_path_factory.mktemp("node"), template, DEVICE_HTTP=True) as shared:
        yield shared
        assert shared.is_running(), shared.log()


@pytest.fixture
def start_node(tmp_path: Path, template: Path) -> Iterator[Callable[..., Node]]:
    """Starts nodes of a test's own: `start_node(GRACE_PERIOD=1)`."""
    with ExitStack() as stack:
        number = iter(range(100))

        def start(**settings: object) -> Node:
            return stack.enter_context(running(tmp_path / f"n{next(number)}", template, **settings))

        yield start


@asynccontextmanager
async def arriving(node: Node) -> AsyncIterator[Come]:
    """Brings clients to a node while the block runs."""
    async with AsyncExitStack() as stack:

        async def arrive(
            runtime_url: str = "", handshake: str = "ws", to: Node | None = None
        ) -> Client:
            runtime_url = runtime_url or runtime()
            place = to or node
            if handshake == "stub":
                return await stack.enter_async_context(place.stub(runtime_url))
            client = await stack.enter_async_context(place.ws())
            return await client.open(runtime_url)

        yield arrive


@pytest.fixture
async def come(node: Node) -> AsyncIterator[Come]:
    """Brings a client with an open session to the shared node: `await come()`.

    `runtime_url` is a fresh one by default; `handshake` is `ws` or `stub`; `to` another node.
    """
    async with arriving(node) as arrive:
        yield arrive
