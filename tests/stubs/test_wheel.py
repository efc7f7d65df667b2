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

ARCHIVE = zipfile.ZipFile(io.BytesIO(wheel.build()))
MODULES = [name for name in ARCHIVE.namelist() if name.endswith(".py")]
ALLOWED = sys.stdlib_module_names | {"websockets", wheel.NAME}
OPTIONAL = {"aiortc", "cryptography", "mnemonic", "msgspec"}
"""Used where they are installed, each behind an ImportError (for `graph/`: in `runtime.graph`) or,
for `p2p/`, where they are looked for first."""


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_the_standard_library_and_websockets_alone(name: str) -> None:
    imported = set()
    for node in ast.walk(ast.parse(ARCHIVE.read(name))):
        if isinstance(node, ast.Import):
            imported.update(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add((node.module or "").partition(".")[0])
    assert imported - OPTIONAL <= ALLOWED


def test_every_module_that_is_imported_from_the_wheel_is_in_it() -> None:
    names = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in MODULES
    }
    for name in MODULES:
        for node in ast.iter_child_nodes(ast.parse(ARCHIVE.read(name))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(wheel.NAME):
                assert node.module in names


def test_the_stub_in_it_is_the_one_of_the_catalogue() -> None:
    stub = next(each for each in catalogue.SERVED if each.name == "python")
    inside = ARCHIVE.read(f"{wheel.NAME}/protostub.py").decode()
    assert inside == stub.source
    assert protostub.__file__ == str(stub.path)


def test_the_record_is_right_and_the_same_files_give_the_same_wheel() -> None:
    (record,) = (name for name in ARCHIVE.namelist() if name.endswith("/RECORD"))
    rows = {
        name: hash_ for name, hash_, _ in csv.reader(ARCHIVE.read(record).decode().splitlines())
    }
    assert set(rows) == set(ARCHIVE.namelist())
    for name, said in rows.items():
        if said:
            digest = hashlib.sha256(ARCHIVE.read(name)).digest()
            assert said == "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert wheel.build() == wheel.build()


def test_the_node_serves_it() -> None:
    client = Client()
    served = client.get(f"/.well-known/runtime/{wheel.FILE_NAME}")
    assert served.status_code == 200
    assert served.content == wheel.build()
    assert "python" in client.get("/.well-known/runtime/").json()
    assert client.get("/.well-known/runtime/none.whl").status_code == 404
