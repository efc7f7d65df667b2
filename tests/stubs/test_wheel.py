"""The wheel of the Python runtime: complete, of the repository's files, and free of the node."""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import sys
import zipfile

import pytest
from django.test import Client

from msgnode.runtime.python import protostub
from msgnode.stubs import catalogue, wheel

ALLOWED = sys.stdlib_module_names | {"websockets", wheel.NAME}
OPTIONAL = {"aiortc", "cryptography", "mnemonic", "msgspec"}
"""Used where they are installed, each behind an ImportError (for `graph/`: in `runtime.graph`) or,
for `p2p/`, where they are looked for first."""


@pytest.fixture(scope="module")
def built() -> bytes:
    return wheel.build()


@pytest.fixture(scope="module")
def archive(built: bytes) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(built))


@pytest.fixture(scope="module")
def modules(archive: zipfile.ZipFile) -> dict[str, ast.Module]:
    """What the modules of the wheel say, by name."""
    names = [name for name in archive.namelist() if name.endswith(".py")]
    return {name: ast.parse(archive.read(name)) for name in names}


def test_every_module_imports_the_standard_library_and_websockets_alone(
    modules: dict[str, ast.Module],
) -> None:
    assert len(modules) > 100
    taken = {name: imported(module) - OPTIONAL - ALLOWED for name, module in modules.items()}
    assert {name: others for name, others in taken.items() if others} == {}


def imported(module: ast.Module) -> set[str]:
    """The packages that it names in imports, wherever they stand."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found.update(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_every_module_that_is_imported_from_the_wheel_is_in_it(
    modules: dict[str, ast.Module],
) -> None:
    names = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in modules
    }
    for module in modules.values():
        for node in ast.iter_child_nodes(module):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(wheel.NAME):
                assert node.module in names


def test_the_stub_in_it_is_the_one_of_the_catalogue(archive: zipfile.ZipFile) -> None:
    stub = next(each for each in catalogue.SERVED if each.name == "python")
    inside = archive.read(f"{wheel.NAME}/protostub.py").decode()
    assert inside == stub.source
    assert protostub.__file__ == str(stub.path)


def test_the_record_is_right_and_the_same_files_give_the_same_wheel(
    built: bytes, archive: zipfile.ZipFile
) -> None:
    (record,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
    rows = {
        name: hash_ for name, hash_, _ in csv.reader(archive.read(record).decode().splitlines())
    }
    assert set(rows) == set(archive.namelist())
    for name, said in rows.items():
        if said:
            digest = hashlib.sha256(archive.read(name)).digest()
            assert said == "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert wheel.build() == built


def test_the_node_serves_it(built: bytes) -> None:
    client = Client()
    served = client.get(f"/.well-known/runtime/{wheel.FILE_NAME}")
    assert served.status_code == 200
    assert served.content == built
    assert "python" in client.get("/.well-known/runtime/").json()
    assert client.get("/.well-known/runtime/none.whl").status_code == 404
