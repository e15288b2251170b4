"""``viewstamp doctor``: reports problems of a cluster in sentences, each with its remedy."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption, duration
from viewstamp.errors import MovedError
from viewstamp.local.find import find_cluster, is_local
from viewstamp.local.target import ClusterTarget
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, cluster_flag, program
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, fitted, print_json

if TYPE_CHECKING:
    from viewstamp.doctor.report import Finding, ProcessReport, Report
    from viewstamp.local.cluster import LocalCluster

__all__ = ["doctor"]

CONNECT_SECONDS: Final = 0.7
SILENCE_SECONDS: Final = 1.0
"""Seconds to wait for a node's answer before it counts as unreachable. Short, because a person waits for the result."""
AGAIN_SECONDS: Final = 1.0
"""Seconds until the second look, so that a passing trouble is not reported: an election takes half a second."""


class FailOn(StrEnum):
    """The findings that make the command fail."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


def doctor(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = SILENCE_SECONDS,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit with 1 from this severity on.")] = FailOn.ERROR,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="TIME",
            parser=duration(),
            help="Repeat the checks for this time at most, until there is no error and no member starts or catches up.",
        ),
    ] = 0.0,
    output: OutputOption = Output.TABLE,
) -> int:
    """Report the problems of a cluster and how to solve them. Changes nothing. Exits with 1 if there is an error."""
    from viewstamp.doctor.report import ERROR, WARNING

    target = find_cluster(directory, cluster)
    local = _local(directory, cluster)
    where = cluster_flag(directory, cluster)
    until = time.monotonic() + wait
    found, report = run_async(_examine(target, local, where, timeout))
    while any(finding.is_passing or finding.severity == ERROR for finding in found) and time.monotonic() < until:
        found, report = run_async(_examine(target, local, where, timeout))
    if output is Output.JSON:
        listed = [{**asdict(finding), "severity": finding.severity} for finding in found]
        print_json({"healthy": not found, "findings": listed})
    else:
        _print(found, report)
    failing = {FailOn.ERROR: {ERROR}, FailOn.WARNING: {ERROR, WARNING}, FailOn.NEVER: set()}[fail_on]
    return 1 if any(finding.severity in failing for finding in found) else 0


def _local(directory: Path | None, cluster: str | None) -> LocalCluster | None:
    from viewstamp.local.cluster import LocalCluster

    return LocalCluster.open(directory or DEFAULT_DIRECTORY) if is_local(directory, cluster) else None


async def _examine(
    target: ClusterTarget, local: LocalCluster | None, where: str, timeout: float
) -> tuple[list[Finding], Report]:
    """Ask all nodes. If there is a finding, ask again a moment later and report only the second look."""
    from viewstamp.doctor.archive import is_examining
    from viewstamp.doctor.findings import findings
    from viewstamp.doctor.report import Report

    earlier: list[Mapping[str, Any]] = []
    while True:
        nodes, seconds = await _ask(target, timeout)
        processes = {str(node.id): _process(node) for node in local.nodes.values()} if local is not None else {}
        known = {str(node["id"]) for node in nodes}
        # A node of this directory that is not a member is known only by its process.
        nodes += [
            {"id": name, "address": local.node(name).address, "reachable": False, "error": ""}
            for name in processes
            if local is not None and name not in known
        ]
        report = Report(
            nodes=nodes, earlier=earlier, processes=processes, seconds=seconds, program=program(), where=where
        )
        found = findings(report)
        # A question makes a node look at its store of archived records; the answer may be there with the next one.
        if earlier or not (found or is_examining(report)):
            return found, report
        earlier = nodes
        await asyncio.sleep(AGAIN_SECONDS)


async def _ask(target: ClusterTarget, timeout: float) -> tuple[list[Mapping[str, Any]], float]:
    """Return the nodes' statuses as ``viewstamp status`` prints them, and the seconds that it took to ask."""
    from viewstamp.client.options import ClientOptions
    from viewstamp.doctor.status import summary

    started = time.monotonic()
    options = ClientOptions(connect_timeout=CONNECT_SECONDS * timeout / SILENCE_SECONDS, silence=timeout)
    async with target.connect(options=options) as client:
        statuses = await client.status()
    return summary(statuses, target.names)["nodes"], time.monotonic() - started


def _process(node: Any) -> ProcessReport:
    from viewstamp.doctor.report import ProcessReport
    from viewstamp.local.process import is_paused

    pid = node.pid()
    if pid is not None:
        return ProcessReport(pid, is_paused(pid), address=node.address)
    words = node.epitaph()
    if words is None:
        return ProcessReport(address=node.address)
    is_moved = isinstance(words, MovedError)
    return ProcessReport(error=words.message, remedy=words.remedy, is_moved=is_moved, address=node.address)


def _print(found: list[Finding], report: Report) -> None:
    leader = report.leader
    count = f"{len(report.up)} of {len(report.nodes)} nodes answer"
    print(f"{'no leader' if leader is None else str(leader['id']) + ' leads'}, {count}")
    if not found:
        print("no problems found")
    for finding in found:
        print("\n" + fitted(f"{finding.severity}: {finding.code}: {finding.sentence}", sys.stdout, indent="  "))
        print(fitted(f"  -> {finding.remedy}", sys.stdout, indent="     "))
