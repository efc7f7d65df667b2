"""What the wheel depends on: the lines of requirements.txt, the only place that names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class RequirementsHook(MetadataHookInterface):
    """Asked by hatchling when it makes the wheel (pyproject.toml)."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in `dependencies`."""
        lines = (Path(self.root) / "requirements.txt").read_text(encoding="utf-8").splitlines()
        metadata["dependencies"] = [
            text for line in lines if (text := line.partition("#")[0].strip())
        ]
