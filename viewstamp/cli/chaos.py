"""``viewstamp chaos``: injects faults into a running local cluster: files, network, disk, process. Needs no root."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import LocalDirOption, OutputOption, TimeoutOption, duration
from viewstamp.errors import ConfigError, UnavailableError
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, print_json, say

if TYPE_CHECKING:
    from viewstamp.host.chaos import Fault
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.local.damage import Damage
    from viewstamp.local.node import LocalNode

__all__ = ["app", "in_force"]

OBEY_SECONDS = 5.0
"""Seconds that a node has to apply a fault, which it reads when it is asked for its status; more than it needs."""

app = typer.Typer(
    cls=CommandGroup,
    help="Inject faults into a running local cluster: its files, network, disks. `viewstamp doctor` explains.",
    no_args_is_help=True,
)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node: n1, n2, ...")]
SegmentOption = Annotated[
    int | None,
    typer.Option("--segment", metavar="N", help="Segment number. [default: any but the newest, if there are several]"),
]
RestartOption = Annotated[
    bool, typer.Option("--restart", help="Kill the node first and start it after, so that it finds the damage at once.")
]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        "--seconds", metavar="TIME", parser=duration(minimum=1.0), help="Duration. [default: until `chaos heal`]"
    ),
]


@app.command("flip-bit")
def flip_bit(
    node: NodeArgument,
    segment: SegmentOption = None,
    byte: Annotated[
        int | None, typer.Option("--byte", metavar="N", help="Byte of the segment. [default: any in a record]")
    ] = None,
    restart: RestartOption = False,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Flip a bit in a node's log, as a failing disk does. The node repairs it from the other members."""
    from viewstamp.local import damage

    act = partial(damage.flip_bit, segment=segment, byte=byte)
    _damage("flip-bit", node, act, directory, restart=restart, timeout=timeout, output=output)


@app.command()
def tear(
    node: NodeArgument,
    segment: SegmentOption = None,
    restart: RestartOption = False,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Replace the second half of a durable write in a node's log by zeros, as a torn write leaves it."""
    from viewstamp.local import damage

    act = partial(damage.tear, segment=segment)
    _damage("tear", node, act, directory, restart=restart, timeout=timeout, output=output)


@app.command("drop-segment")
def drop_segment(
    node: NodeArgument,
    segment: SegmentOption = None,
    restart: RestartOption = False,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete one segment file of a node's log."""
    from viewstamp.local import damage

    act = partial(damage.drop_segment, segment=segment)
    _damage("drop-segment", node, act, directory, restart=restart, timeout=timeout, output=output)


def _damage(
    kind: str,
    name: str,
    act: Callable[[str], Damage],
    directory: Path,
    *,
    restart: bool,
    timeout: float,
    output: Output,
) -> None:
    cluster, node = _open(directory, name)

    async def kill_act_and_start() -> Damage:
        if not restart:
            return act(node.directory)
        await node.kill()
        try:
            return act(node.directory)
        finally:
            cluster.spawn(node)

    done = run_async(kill_act_and_start())
    runs = node.pid() is not None
    if output is Output.TABLE:
        print(f"{name}: {done.sentence}")
    mended: list[str] = []
    if restart:
        run_async(cluster.wait_running([node], timeout))
        mended = _mended(node)
    if output is Output.JSON:
        fields = {"path": done.path, "byte": done.byte, "bytes": done.bytes, "sentence": done.sentence}
        print_json({"fault": kind, "node": name, **fields, "restarted": restart, "mended": mended})
        return
    where, command = dir_flag(directory, DEFAULT_DIRECTORY), program()
    if restart:
        effect = "; ".join(mended) or "it misses no record, because a snapshot covers them or there were none"
        print(f"{name} was killed and started again: {effect}")
        print(f"inspect it: {command} doctor{where}")
        return
    print(f"inspect it: {command} wal verify {os.path.relpath(node.directory)}")
    if not runs:
        when = f"{name} is not running; it finds the damage when it starts"
    elif done.is_newest:
        when = f"{name} still writes that file; it finds the damage when a record there is read, or when it starts"
    else:
        when = f"{name} finds the damage within an hour, when it checks its files, or when it starts"
    print(f"{when}:\n            {command} cluster restart {name}{where}")


def _mended(node: LocalNode) -> list[str]:
    """Return how a started node has handled damage, as its log reports it."""
    steps = []
    for event in node.events(
        "! damaged",
        "! the beginning of the log is lost",
        "= repaired",
        "= recovering until the lost records are replaced",
    ):
        match event["event"]:
            case "! damaged":
                steps.append("it found the damage")
            case "! the beginning of the log is lost":
                steps.append("it found that the beginning of its log is missing")
            case "= repaired" if event["bytes"]:
                aside = f", and keeps the damaged file in {os.path.relpath(event['aside'])}" if event["aside"] else ""
                steps.append(f"fetched {event['bytes']:,} bytes from {event['peer']}{aside}")
            case "= recovering until the lost records are replaced":
                steps.append("does not vote until its log is complete again")
            case _:
                pass
    return steps


@app.command()
def pause(
    node: NodeArgument,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="TIME", parser=duration(minimum=0.1), help="Duration.")
    ] = 5.0,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Pause a node's process with SIGSTOP, then continue it. Ctrl-C continues it at once."""
    cluster, chosen = _open(directory, node)
    _check_runs([chosen], cluster, directory)

    async def hold() -> None:
        try:
            chosen.send_signal(signal.SIGSTOP)
            if output is Output.TABLE:
                say(f"{node} (process {chosen.pid()}) is paused for {seconds:g} s; Ctrl-C continues it")
            await asyncio.sleep(seconds)
        finally:
            chosen.send_signal(signal.SIGCONT)

    run_async(hold())
    if output is Output.JSON:
        print_json({"fault": "pause", "node": node, "seconds": seconds})
    else:
        print(f"{node} continues")


@app.command()
def partition(
    node: NodeArgument,
    others: Annotated[
        list[str] | None, typer.Option("--from", metavar="OTHER", help="Only from this node. [default: from all]")
    ] = None,
    one_way: Annotated[
        bool, typer.Option("--one-way", help="Block only messages from NODE; it still receives messages.")
    ] = False,
    seconds: SecondsOption = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Block the messages between a node and other nodes, in both directions. Clients still reach all of them."""
    from viewstamp.host.chaos import Fault, FaultKind

    cluster, chosen, far = _open_and_others(directory, node, others)
    until = _until(seconds)

    def cut(peers: Iterable[LocalNode]) -> Fault:
        return Fault(kind=FaultKind.PARTITION, peers={peer.id: peer.address for peer in peers}, until=until)

    faults: dict[str, Fault] = {chosen.id: cut(far)}
    if not one_way:
        faults |= {each.id: cut([chosen]) for each in far}
    _impose(cluster, chosen, faults, directory, add=True)
    names = ", ".join(each.id for each in far)
    done = (
        f"{names} receive nothing from {node}, which receives from them"
        if one_way
        else f"{node} is cut off from {names}"
    )
    _report(output, directory, done, seconds, fault="partition", node=node, others=[each.id for each in far])


@app.command()
def delay(
    node: NodeArgument,
    milliseconds: Annotated[
        float,
        typer.Argument(
            metavar="TIME",
            parser=duration(minimum=1, maximum=60_000, bare="ms"),
            help="Delay of each message, e.g. 40ms; a plain number is in milliseconds.",
        ),
    ],
    others: Annotated[
        list[str] | None, typer.Option("--from", metavar="OTHER", help="Only from this node. [default: from all]")
    ] = None,
    one_way: Annotated[bool, typer.Option("--one-way", help="Delay only messages from NODE.")] = False,
    seconds: SecondsOption = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Delay each message between a node and other nodes by TIME, in both directions, as if they were far apart."""
    from viewstamp.host.chaos import Fault, FaultKind

    cluster, chosen, far = _open_and_others(directory, node, others)
    until = _until(seconds)

    def late(peers: Iterable[LocalNode]) -> Fault:
        where = {str(peer.id): peer.address for peer in peers}
        return Fault(kind=FaultKind.DELAY, peers=where, milliseconds=round(milliseconds), until=until)

    faults: dict[str, Fault] = {chosen.id: late(far)}
    if not one_way:
        faults |= {each.id: late([chosen]) for each in far}
    _impose(cluster, chosen, faults, directory, add=True)
    names = ", ".join(each.id for each in far)
    done = f"messages from {node} to {names}{'' if one_way else ', and back,'} arrive {milliseconds:g} ms later"
    _report(
        output,
        directory,
        done,
        seconds,
        fault="delay",
        node=node,
        others=[each.id for each in far],
        ms=round(milliseconds),
    )


@app.command("slow-disk")
def slow_disk(
    node: NodeArgument,
    milliseconds: Annotated[
        float,
        typer.Option(
            "--milliseconds",
            metavar="TIME",
            parser=duration(minimum=1, maximum=60_000, bare="ms"),
            help="Delay added to each sync, e.g. 250ms; a plain number is in milliseconds.",
        ),
    ] = 500,
    seconds: SecondsOption = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Delay every sync of a node's disk."""
    from viewstamp.host.chaos import Fault, FaultKind

    cluster, chosen = _open(directory, node)
    fault = Fault(kind=FaultKind.SLOW_DISK, milliseconds=round(milliseconds), until=_until(seconds))
    _impose(cluster, chosen, {chosen.id: fault}, directory, add=False)
    done = f"every sync of {node} takes {milliseconds:g} ms longer"
    _report(output, directory, done, seconds, fault="slow-disk", node=node, milliseconds=round(milliseconds))


@app.command("fill-disk")
def fill_disk(
    node: NodeArgument,
    seconds: SecondsOption = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a node see its disk as nearly full. The real disk is not filled. Preallocated files are still written."""
    from viewstamp.host.chaos import Fault, FaultKind

    cluster, chosen = _open(directory, node)
    fault = Fault(kind=FaultKind.FILL_DISK, until=_until(seconds))
    _impose(cluster, chosen, {chosen.id: fault}, directory, add=False)
    done = f"{node} sees its disk as full: it accepts appends until its preallocated files are full"
    _report(output, directory, done, seconds, fault="fill-disk", node=node)


@app.command()
def heal(directory: LocalDirOption = Path(DEFAULT_DIRECTORY), output: OutputOption = Output.TABLE) -> None:
    """End every pause, partition, delay, slow disk and full disk. The nodes repair damaged files themselves."""
    from viewstamp.host.chaos import write_faults
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.local.process import is_paused

    cluster = LocalCluster.open(directory)
    ended = in_force(cluster)
    for node in cluster.nodes.values():
        pid = node.pid()
        if pid is not None and is_paused(pid):
            node.send_signal(signal.SIGCONT)
            ended.setdefault(node.id, []).append("pause")
        write_faults(node.directory, [])
    if output is Output.JSON:
        print_json({"healed": ended})
    else:
        print(
            "\n".join(f"{name}: ended {', '.join(kinds)}" for name, kinds in ended.items())
            or "there was no fault to end; nodes repair damaged files themselves: see `viewstamp doctor`"
        )


def in_force(cluster: LocalCluster) -> dict[str, list[str]]:
    """Return the injected faults of a local cluster's nodes: node to the names of its faults."""
    from viewstamp.host.chaos import read_faults

    found = {
        str(node.id): list(dict.fromkeys(str(f.kind) for f in read_faults(node.directory)))
        for node in cluster.nodes.values()
    }
    return {name: kinds for name, kinds in found.items() if kinds}


def _open(directory: Path, name: str) -> tuple[LocalCluster, LocalNode]:
    from viewstamp.local.cluster import LocalCluster

    cluster = LocalCluster.open(directory)
    return cluster, cluster.node(name)


def _open_and_others(
    directory: Path, name: str, others: list[str] | None
) -> tuple[LocalCluster, LocalNode, list[LocalNode]]:
    """Return the cluster, the node, and the other nodes that are named; all, if none is."""
    cluster, chosen = _open(directory, name)
    if name in (others or ()):
        raise ConfigError(f"--from {name}: {name} cannot be cut off from itself", remedy="name another node")
    far = [cluster.node(each) for each in others or [each for each in cluster.nodes if each != name]]
    if not far:
        raise ConfigError(f"{name} is the only node: there is none to cut it off from", remedy="add one: members add")
    return cluster, chosen, far


def _until(seconds: float | None) -> float:
    return 0.0 if seconds is None else time.time() + seconds


def _check_runs(nodes: Iterable[LocalNode], cluster: LocalCluster, directory: Path) -> None:
    for node in nodes:
        if node.pid() is None:
            raise UnavailableError(
                f"{node.id} is not running",
                remedy=f"start it: {program()} cluster restart {node.id}{dir_flag(directory, DEFAULT_DIRECTORY)}",
            )


def _impose(
    cluster: LocalCluster, chosen: LocalNode, faults: Mapping[str, Fault], directory: Path, *, add: bool
) -> None:
    """Write each node's fault into its file, and wait until all running nodes have applied it.

    With ``add`` other faults of the same kind stay, else they are replaced.

    Raises:
      ConfigError: a node's settings do not allow chaos.
      UnavailableError: ``chosen`` does not run, or a node does not apply its fault in time.
    """
    from viewstamp.host.chaos import read_faults, write_faults

    nodes = [cluster.node(name) for name in faults]
    _check_runs([chosen], cluster, directory)
    for node in nodes:
        if not node.settings.node.chaos:
            raise ConfigError(
                f"{node.id} does not allow chaos: chaos = true is missing in {node.file}",
                remedy="add it to [node] and restart the node; never do so where the data matters",
            )
    for node in nodes:
        fault = faults[node.id]
        kept = [each for each in read_faults(node.directory) if add or each.kind != fault.kind]
        write_faults(
            node.directory, [*(each for each in kept if (each.kind, each.peers) != (fault.kind, fault.peers)), fault]
        )
    run_async(_wait_obeyed(cluster, {node.id: faults[node.id].kind for node in nodes if node.pid() is not None}))


async def _wait_obeyed(cluster: LocalCluster, waiting: dict[str, str]) -> None:
    names, deadline = dict(cluster.target.names), time.monotonic() + OBEY_SECONDS
    async with cluster.target.connect() as client:
        while waiting:
            for status in await client.status():
                name = str(status.get("id") or names.get(status["address"]))
                faults = status.get("chaos")
                if name in waiting and status["reachable"] and faults is None:
                    raise ConfigError(
                        f"{name} runs with settings from before chaos was allowed",
                        remedy=f"restart it: {program()} cluster restart {name}"
                        f"{dir_flag(cluster.directory, DEFAULT_DIRECTORY)}",
                    )
                if waiting.get(name) in {fault["fault"] for fault in faults or ()}:
                    del waiting[name]
            if waiting and time.monotonic() > deadline:
                raise UnavailableError(
                    f"{', '.join(waiting)} did not apply the fault within {OBEY_SECONDS:g} s, but may do so later",
                    remedy=f"run `{program()} doctor`; to end the fault: `viewstamp chaos heal`",
                )
            if waiting:
                await asyncio.sleep(0.05)


def _report(output: Output, directory: Path, done: str, seconds: float | None, **fields: object) -> None:
    if output is Output.JSON:
        print_json({**fields, "seconds": seconds})
        return
    where, command = dir_flag(directory, DEFAULT_DIRECTORY), program()
    print(done if seconds is None else f"{done}, for {seconds:g} s")
    if seconds is None:
        print(f"end it:     {command} chaos heal{where}")
    print(f"inspect it: {command} doctor{where}")
