"""``ClusterFactory``: the value of the fixture ``viewstamp_cluster``; the only module that depends on pytest."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from viewstamp.actors.replicated import ReplicatedActor
from viewstamp.testing.simulation import SECONDS, Invocation, Simulation

if TYPE_CHECKING:
    import pytest

__all__ = ["ClusterFactory"]


class ClusterFactory:
    """Creates the simulations of one test, according to pytest's command line."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        config = request.config
        self._invocation = Invocation(
            seed=config.getoption("--viewstamp-seed"),
            seeds=config.getoption("--viewstamp-seeds"),
            sink=_printer(config) if config.getoption("--viewstamp-trace") else None,
            repeat=lambda seed: f"pytest {shlex.quote(_test_of(request))} --viewstamp-seed {seed}",
            show=lambda text: request.node.add_report_section("call", "viewstamp", text),
        )

    def __call__(
        self,
        actors: Mapping[str, type[ReplicatedActor]],
        *,
        nodes: int | None = None,
        faults: Collection[str] | None = None,
        seconds: float = SECONDS,
        allow: Collection[str] = (),
    ) -> Simulation:
        """Describe the clusters to simulate. See :class:`Simulation`."""
        return Simulation(actors, nodes=nodes, faults=faults, seconds=seconds, allow=allow, invocation=self._invocation)


def _test_of(request: pytest.FixtureRequest) -> str:
    """Return the test's name for a command line, relative to the directory in which pytest was called."""
    item: Any = request.node
    _, colons, names = item.nodeid.partition("::")
    return f"{os.path.relpath(item.path, request.config.invocation_params.dir)}{colons}{names}"


def _printer(config: pytest.Config) -> Callable[[str], None]:
    """Return a function that prints a line to the terminal, even if pytest captures output."""
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        return print

    def write(line: str) -> None:
        reporter.ensure_newline()
        reporter.write_line(line)

    return write
