"""The types of the JavaScript runtime, as somebody who installed the package meets them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from msgnode.stubs.views import javascript_package
from tests.runtime.pages import PACKAGE

OPTIONS = {
    "compilerOptions": {
        "strict": True,
        "noEmit": True,
        "target": "es2022",
        "module": "nodenext",
        "moduleResolution": "nodenext",
        "lib": ["es2022"],  # not everybody's program is for a page
        "types": [],
    },
    "files": ["application.ts"],
}


@pytest.fixture
def tsc() -> str:
    found = os.environ.get("TSC") or shutil.which("tsc")
    if not found:
        pytest.skip("no TypeScript compiler (tsc) on this machine")
    return found


@pytest.mark.long
def test_an_application_compiles_and_what_is_wrong_does_not(tsc: str, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(javascript_package())) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    modules = tmp_path / "node_modules"
    modules.mkdir()
    (tmp_path / "unpacked" / "package").rename(modules / "msgnode-runtime")
    shutil.copy(PACKAGE / "tests" / "types.ts", tmp_path / "application.ts")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "tsconfig.json").write_text(json.dumps(OPTIONS))
    done = subprocess.run(
        [tsc, "--project", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("types", "modules"),
    [
        ("index.d.ts", ["common.js", "browser.js"]),
        ("panel.d.ts", ["panel.js"]),
        ("policies/index.d.ts", ["policies/index.js"]),
        ("protostub.d.ts", ["protostub.js"]),
        ("openid.d.ts", ["openid.js"]),
        ("syncher/index.d.ts", ["syncher/index.js"]),
    ],
)
def test_what_is_exported_has_a_type(types: str, modules: list[str]) -> None:
    named = {
        each
        for module in modules
        for group in re.findall(
            r"^export (?:class|function|async function) (\w+)|^export \{([^}]*)\}",
            (PACKAGE / "src" / module).read_text(),
            re.MULTILINE,
        )
        for each in re.findall(r"\w+", " ".join(group))
    }
    text = (PACKAGE / "src" / types).read_text()
    typed = set(re.findall(r"^export (?:abstract )?(?:class|function) (\w+)", text, re.MULTILINE))
    assert named and named <= typed
