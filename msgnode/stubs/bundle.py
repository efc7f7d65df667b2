"""Bundles JavaScript modules of the runtime into one ES module, for places that cannot import.

Rules
- The modules are plain: imports and exports are at the beginning of a line, an import is of
  existing names in braces, and names are declared where they are exported.
- Each module keeps a scope of its own, so names may repeat. The bundle exports what the first
  module exports.
- The same files give the same text.
"""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]*)";$', re.MULTILINE)
_ANY_IMPORT = re.compile(r"^import\b.*$", re.MULTILINE)
_EXPORT = re.compile(
    r"^export (default )?(?=(?:async )?(?:class|function\*?|const|let) (\w+))", re.MULTILINE
)
_ANY_EXPORT = re.compile(r"^export\b.*$", re.MULTILINE)


class BundleError(Exception):
    """A module is not as plain as it has to be."""


def bundled(entry: Path) -> str:
    """The module and all that it imports, as one.

    Args:
        entry: the file.

    Returns:
        An ES module with the exports of `entry`.

    Raises:
        BundleError: a module is not plain, or two need one another.
    """
    parts: dict[Path, str] = {}
    exports = _add(entry.resolve(), parts, ())
    named = ", ".join(f"{name} as {said}" if said != name else name for said, name in exports)
    top = ", ".join(name for _, name in exports)
    last = f"const {{ {top} }} = {_scope(entry.resolve(), parts)};"
    return "\n".join([*parts.values(), last, f"export {{ {named} }};", ""])


def _add(path: Path, parts: dict[Path, str], above: tuple[Path, ...]) -> list[tuple[str, str]]:
    """Add a module behind those that it needs; its exports: names outside, and inside."""
    if path in above:
        raise BundleError(f"{path.name} needs itself")
    text = path.read_text(encoding="utf-8")
    exports = [(found[1] and "default" or found[2], found[2]) for found in _EXPORT.finditer(text)]
    if path in parts:
        return exports
    for found in _IMPORT.finditer(text):
        there = _add((path.parent / found[2]).resolve(), parts, (*above, path))
        wanted = {name.split(" as ")[0].strip() for name in found[1].split(",") if name.strip()}
        if lacking := wanted - {said for said, inside in there if said == inside}:
            raise BundleError(f"{path.name}: {found[2]} has no {', '.join(sorted(lacking))}")

    def taken(found: re.Match[str]) -> str:
        names = " ".join(found[1].split()).replace(" as ", ": ")
        return f"const {{ {names} }} = {_scope((path.parent / found[2]).resolve(), parts)};"

    body = _EXPORT.sub("", _IMPORT.sub(taken, text))
    for odd in (_ANY_IMPORT.search(body), _ANY_EXPORT.search(body)):
        if odd:
            raise BundleError(f"{path.name}: {odd[0]!r} is not plain")
    names = ", ".join(name for _, name in exports)
    parts[path] = ""  # its place is its number
    parts[path] = f"const {_scope(path, parts)} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"
    return exports


def _scope(path: Path, parts: dict[Path, str]) -> str:
    return f"$module{list(parts).index(path)}"
