"""The Python runtime as a wheel, made from the files of this repository when it is first asked for.

    python -m msgnode.stubs.wheel FOLDER        writes the wheel, and a source distribution

Rules
- It holds the package `msgnode.runtime.python` and, of the node's pure modules (`msgnode.core`, the
  policy engine, signed records), those that it imports: one source, no copy in the repository.
- In the wheel all of them are `hyperty_runtime.…`; only import statements are rewritten. The
  protostub has none of these and stays, to the byte, what the catalogue serves.
- What the package says of itself is in its `pyproject.toml`, its version in its `settings.py`.
- The same files give the same wheel.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import io
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgnode.core import base64url
from msgnode.resources import SHARED

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = "msgnode.runtime.python"
_FOLDER = _ROOT / "msgnode" / "runtime" / "python"


_VERSIONS = re.findall(
    r'^__version__ = "(.+)"$', (_FOLDER / "settings.py").read_text("utf-8"), re.MULTILINE
)
(VERSION,) = _VERSIONS
NAME = "hyperty_runtime"
FILE_NAME = f"{NAME}-{VERSION}-py3-none-any.whl"

_NAMES = {
    _PACKAGE: NAME,
    "msgnode.core": f"{NAME}._core",
    "policies": f"{NAME}._policies",
    "registry": f"{NAME}._registry",
}
_IMPORT = re.compile(
    rf"^(\s*(?:from|import) )({'|'.join(map(re.escape, _NAMES))})(?=[. ]|$)", re.MULTILINE
)
_DATE = (2020, 1, 1, 0, 0, 0)  # of every file, so that equal content is an equal wheel
_WHEEL = "Wheel-Version: 1.0\nGenerator: messaging-node\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build() -> bytes:
    """The content of the wheel."""
    files = dict(_files())
    info = f"{NAME}-{VERSION}.dist-info"
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    files[f"{info}/licenses/LICENSE"] = (SHARED / "LICENSE").read_bytes()
    record = "".join(f"{name},sha256={_hash(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return target.getvalue()


def source() -> bytes:
    """The content of the source distribution, of which `python -m build` makes the same."""
    top = f"{NAME}-{VERSION}"
    files = {
        "PKG-INFO": _metadata().encode(),
        "LICENSE": (SHARED / "LICENSE").read_bytes(),
        **{name: (_FOLDER / name).read_bytes() for name in ("README.md", "pyproject.toml")},
        **dict(_files()),
    }
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(target.getvalue(), mtime=0)


def _metadata() -> str:
    said = tomllib.loads((_FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {said['name']}",
        f"Version: {VERSION}",
        f"Summary: {said['description']}",
        f"License-Expression: {said['license']}",
        *(f"License-File: {name}" for name in said["license-files"]),
        f"Requires-Python: {said['requires-python']}",
        *(f"Requires-Dist: {each}" for each in said["dependencies"]),
    ]
    for extra, needed in said["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {each}; extra == "{extra}"' for each in needed]
    readme = (_FOLDER / "README.md").read_text(encoding="utf-8")
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", readme])


def _hash(data: bytes) -> str:
    return base64url.encode(hashlib.sha256(data).digest())


def _files() -> Iterator[tuple[str, bytes]]:
    """Path in the wheel and content of every module."""
    for module in sorted(_modules()):
        path = _path_of(module)
        if path is None:
            continue
        inside = _renamed(module).replace(".", "/")
        name = f"{inside}/__init__.py" if path.name == "__init__.py" else f"{inside}.py"
        text = path.read_text(encoding="utf-8")
        yield name, _IMPORT.sub(lambda found: found[1] + _NAMES[found[2]], text).encode()
    yield f"{NAME}/py.typed", b""


def _modules() -> set[str]:
    """The package's modules and, of ours, all that they import when they run."""
    folder = _ROOT / _PACKAGE.replace(".", "/")
    waiting = [_PACKAGE, *(f"{_PACKAGE}.{path.stem}" for path in folder.glob("[a-z]*.py"))]
    for part in ("syncher", "p2p"):
        waiting += [f"{_PACKAGE}.{part}.{path.stem}" for path in folder.glob(f"{part}/[a-z]*.py")]
    found = set(waiting)
    while waiting:
        module = waiting.pop()
        for name in _imported(module):
            parents = [name[:end] for end in range(len(name)) if name[end] == "."]
            for each in (name, *parents):
                if each not in found and _is_taken(each) and _path_of(each) is not None:
                    found.add(each)
                    waiting.append(each)
    return found


def _imported(module: str) -> Iterator[str]:
    path = _path_of(module)
    if path is None:
        return
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in _running([ast.parse(path.read_text(encoding="utf-8"))]):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            name = ".".join(part for part in (base, node.module) if part)
            yield name
            yield from (f"{name}.{each.name}" for each in node.names)


def _running(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These and the statements inside them, without those that only a type checker sees."""
    for each in statements:
        if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.dump(each.test):
            continue
        yield each
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            inside = getattr(each, part, ())
            if isinstance(inside, list):  # an expression may have a body, too, that is no list
                yield from _running(inside)


def _is_taken(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in _NAMES)


def _renamed(module: str) -> str:
    name = next(name for name in _NAMES if module == name or module.startswith(f"{name}."))
    return _NAMES[name] + module[len(name) :]


def _path_of(module: str) -> Path | None:
    path = _ROOT / module.replace(".", "/")
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    (place / FILE_NAME).write_bytes(build())
    (place / f"{NAME}-{VERSION}.tar.gz").write_bytes(source())
