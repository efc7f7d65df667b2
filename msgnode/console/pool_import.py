"""Parses lists of pool addresses as operators write them: one address or range per line. Pure.

    sip:reception@example.org
    sip:guest{001-250}@example.org      guest001 to guest250; leading zeros give the width

A file is read as CSV: the first column counts, a heading `address` is skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgnode.core import addresses

MOST = 100_000
"""Most addresses of one text or file."""
_FAULTS_TOLD = 20
_RANGE = re.compile(r"\{(\d{1,9})-(\d{1,9})\}")


class Lines(NamedTuple):
    """The content of a text: distinct addresses in order, and the errors by line."""

    addresses: list[str]
    faults: list[str]


def of_text(text: str, scheme: str) -> Lines:
    """Parse lines; empty ones and those that begin with # are skipped."""
    return _read(((n, line.strip()) for n, line in enumerate(text.splitlines(), 1)), scheme)


def of_file(content: bytes, scheme: str) -> Lines:
    """Read the first column of a CSV file in UTF-8."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Lines([], ["The file is not UTF-8 text."])
    reader = csv.reader(text.splitlines(), strict=False)
    cells = ((reader.line_num, row[0].strip()) for row in reader if row)
    try:
        return _read(
            ((n, "" if n == 1 and cell == "address" else cell) for n, cell in cells), scheme
        )
    except csv.Error as fault:
        return Lines([], [f"line {reader.line_num}: {fault}"])


def _read(lines: Iterable[tuple[int, str]], scheme: str) -> Lines:
    found: dict[str, None] = {}
    faults: list[str] = []
    for number, line in lines:
        if not line or line.startswith("#"):
            continue
        fault = _fault(line, scheme)
        if not fault and len(found) + _size(line) > MOST:
            fault = f"more than {MOST:,} addresses at once"
        if fault:
            faults.append(f"line {number}: {fault}")
            if len(faults) == _FAULTS_TOLD:
                faults.append("and perhaps more")
                break
        else:
            found.update(dict.fromkeys(_expanded(line)))
    return Lines(list(found), faults)


def _fault(line: str, scheme: str) -> str:
    ranges = _RANGE.findall(line)
    rest = _RANGE.sub("", line)
    if len(ranges) > 1:
        return "more than one range"
    if "{" in rest or "}" in rest:
        return "a range is written {first-last}, e.g. {001-250}"
    if ranges and int(ranges[0][0]) > int(ranges[0][1]):
        return "the range ends before it begins"
    if why := addresses.fault(line):
        return why
    if len(line) > addresses.MAX_HELD:
        return f"is longer than {addresses.MAX_HELD} characters"
    parsed = addresses.parse(line)
    if parsed.scheme != scheme:
        return f"is no {scheme} address (it begins with {scheme}:)"
    return "" if parsed.domain or parsed.path.strip("/") else "names nobody"


def _size(line: str) -> int:
    found = _RANGE.search(line)
    return int(found[2]) - int(found[1]) + 1 if found else 1


def _expanded(line: str) -> Iterator[str]:
    found = _RANGE.search(line)
    if found is None:
        yield line
        return
    head, tail, width = line[: found.start()], line[found.end() :], len(found[1])
    for number in range(int(found[1]), int(found[2]) + 1):
        yield f"{head}{number:0{width}}{tail}"
