"""Runs that have failed once, each with the sentence that tells what was wrong in the product."""

from __future__ import annotations

from .scenario import Fault

KEPT: list[tuple[str, int, list[Fault]]] = [
    (
        "an event of a worker that was cut off did not reach who had begun to listen elsewhere "
        "meanwhile, and nobody was told",
        23,
        [Fault(9.68, "redis cut", 0, 12.0)],
    ),
]
