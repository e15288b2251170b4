"""Draws the packages in their layers, as the import contract in ``pyproject.toml`` states them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from docs.pictures.svg import Drawing

__all__ = ["CAPTIONS", "draw", "layers"]

ROOT = Path(__file__).parents[2]
CAPTIONS = {
    "__main__": "python -m viewstamp",
    "cli": "the viewstamp command",
    "pytest_plugin": "the fixture viewstamp_cluster",
    "demo": "real clusters, real kills, a proof",
    "bench": "measurements",
    "local": "the node processes of this machine",
    "doctor": "findings and remedies from the nodes' reports; pure",
    "terminal": "input and output of commands",
    "spark": "Spark's sink and sources",
    "testing": "users' actors on the simulator",
    "sim": "whole clusters on simulated clocks, disks and networks",
    "trio": "client and node for trio programs",
    "embed": "open_node, connect, local_cluster",
    "backup": "backups, and the files that a restore begins with",
    "fork": "a new cluster from the files of stopped nodes",
    "replay": "reading the logs of stopped nodes",
    "streams": "the state machine: topics, sessions, actors",
    "config": "settings",
    "archive": "runs of old records as Parquet files",
    "client": "sessions, retries, reading",
    "node": "one member, assembled",
    "consensus": "the protocol; pure",
    "wal": "the log on disk",
    "actors": "local and replicated actors",
    "host": "clock, disk, network, random numbers",
    "wire": "batches, frames, requests as bytes",
    "errors": "all exceptions",
    "enums": "fast enum members",
    "ids": "Term, Index, Viewstamp",
    "quantities": "sizes and durations",
    "value_class": "quick value classes",
}
"""A caption for each package of the contract."""

_WIDTH, _LEFT, _GAP, _HEIGHT = 700.0, 12.0, 8.0, 40.0


def layers() -> list[list[str]]:
    """Return the layers of the contract, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = [each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers"]
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def draw() -> str:
    """Return the picture."""
    rows = layers()
    listed = "; ".join(" and ".join(row) for row in rows)
    drawing = Drawing("The packages of viewstamp in layers", f"From the highest to the lowest: {listed}")
    y = _LEFT
    for row in rows:
        width = (_WIDTH - 2 * _LEFT - _GAP * (len(row) - 1)) / len(row)
        for column, name in enumerate(row):
            x = _LEFT + column * (width + _GAP)
            drawing.box(x, y, width, _HEIGHT)
            if len(row) == 1:
                drawing.text(x + 10, y + 25, name, style="mono bold")
                drawing.text(x + 130, y + 25, CAPTIONS[name])
            else:
                drawing.text(x + 10, y + 17, name, style="mono bold")
                drawing.text(x + 10, y + 33, CAPTIONS[name])
        y += _HEIGHT + _GAP
    rule = "A package may import packages of lower layers only. Packages side by side are independent."
    drawing.text(_LEFT, y + 12, rule)
    return drawing.render(_WIDTH, y + 24)
