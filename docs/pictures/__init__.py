"""The pictures of the pages, drawn by ``python -m docs.pictures``; a test compares them with the files."""

from __future__ import annotations

from docs.pictures import layers
from docs.pictures.scenes import SCENES

__all__ = ["pictures"]


def pictures() -> dict[str, str]:
    """Return each picture by the name of its file."""
    return {"layers.svg": layers.draw(), **{f"{name}.svg": scene.draw() for name, scene in SCENES.items()}}
