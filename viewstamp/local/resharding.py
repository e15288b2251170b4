"""Reshards a stopped cluster on this machine, with the actors' code that the nodes' settings name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from viewstamp.errors import RequestError

if TYPE_CHECKING:
    from viewstamp.actors.replicated import ReplicatedActor
    from viewstamp.fork import ForkResult, ForkSource, Reshard
    from viewstamp.local.forking import Forking

__all__ = ["classes_of", "plan", "run"]

Classes = Mapping[str, "type[ReplicatedActor]"]


class Steps(Protocol):
    """Shows the progress of work in parts, each with a number of bytes."""

    def begin(self, text: str, total: int, /) -> None:
        """Begin a part."""

    def add(self, count: int, /) -> None:
        """Add bytes that were done."""


def classes_of(forking: Forking, named: Sequence[str]) -> Classes:
    """Return the classes in ``[actors]`` of the nodes' settings, and those named as ``NAME=module:Class``, which win.

    Raises:
      RequestError: an entry has another shape.
      ConfigError: a class cannot be imported.
    """
    from viewstamp.embed.actor_classes import import_actors

    entries = dict(each.partition("=")[::2] for each in named)
    for name, target in entries.items():
        if not name or ":" not in target:
            raise RequestError(
                f"--actor {name}={target} does not name a class", remedy="write --actor NAME=module:Class"
            )
    found: dict[str, type[ReplicatedActor]] = {}
    for node in forking.nodes:
        missing = {name: t for name, t in node.settings.actors.items() if name not in found and name not in entries}
        found |= import_actors(missing, os.path.dirname(node.file))
    return {**found, **import_actors(entries)}


def plan(
    forking: Forking,
    source: ForkSource,
    classes: Classes,
    progress: Steps,
    *,
    groups: int,
    spread: Sequence[str],
) -> Reshard:
    """Compute the states, and plan the new groups; blocking. Raises as ``viewstamp.fork.plan_reshard``."""
    from viewstamp.fork import plan_reshard
    from viewstamp.host.disk import RealDisk

    progress.begin("computing the states", _bytes(source))
    return plan_reshard(
        RealDisk(),
        source,
        groups=groups,
        members=forking.new_members,
        classes=classes,
        spread=spread,
        on_bytes=progress.add,
    )


def run(forking: Forking, plan: Reshard, progress: Steps) -> ForkResult:
    """Write the new cluster, read it back and compare it; blocking. Raises as ``Forking.run`` and ``Reshard.check``."""
    size = _bytes(plan.source)

    def check(staged: Sequence[str]) -> None:
        progress.begin("reading the new cluster back", size)
        plan.check(staged, progress.add)

    progress.begin("writing the new cluster", size * len(forking.members))
    return forking.run(plan.source, progress.add, check)


def _bytes(source: ForkSource) -> int:
    return source.bytes + sum(each.source.bytes for each in source.groups)
