"""``viewstamp chaos``: break a running local cluster in every way that machines break. Never needs root."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import LocalDirOption, OutputOption, TimeoutOption
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
"""How long a node may take to obey: it looks twenty times a second, and may be short of processors."""

app = typer.Typer(
    cls=CommandGroup,
    help="Break a running local cluster on purpose: its files, its network, its disks. `viewstamp doctor` explains.",
    no_args_is_help=True,
)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="n1, n2, ...")]
SegmentOption = Annotated[
    int | None,
    typer.Option("--segment", metavar="N", help="Of its log. [default: one that is not written any more, if any]"),
]
RestartOption = Annotated[
    bool, typer.Option("--restart", help="Kill the node first, and start it after: it notices at once.")
]
SecondsOption = Annotated[
    float | None, typer.Option("--seconds", metavar="S", min=1.0, help="How long. [default: until `chaos heal`]")
]


@app.command("flip-bit")
def flip_bit(
    node: NodeArgument,
    segment: SegmentOption = None,
    byte: Annotated[int | None, typer.Option("--byte", metavar="N", help="Of the segment. [default: any]")] = None,
    restart: RestartOption = False,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Flip a bit in a node's log, as a disk does that rots. The others have the record: it is repaired from them."""
    from viewstamp.local import damage

    def act(path: str) -> Damage:
        return damage.flip_bit(path, segment=segment, byte=byte)

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
    """Tear a write in a node's log that was durable: the second half of it is zeros."""
    from viewstamp.local import damage

    def act(path: str) -> Damage:
        return damage.tear(path, segment=segment)

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
    """Remove a file of a node's log."""
    from viewstamp.local import damage

    def act(path: str) -> Damage:
        return damage.drop_segment(path, segment=segment)

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
        told = "; ".join(mended) or "it misses nothing, as a snapshot stands for what was there, or nothing was"
        print(f"{name} was killed and started again: {told}")
        print(f"look at it: {command} doctor{where}")
        return
    print(f"see it:     {command} wal verify {os.path.relpath(node.directory)}")
    if not runs:
        when = f"{name} is not running, and notices when it starts"
    elif done.is_newest:
        when = f"{name} still writes that file, and notices when somebody reads there, or when it starts"
    else:
        when = f"{name} notices within an hour, when it looks through its files; or when it starts"
    print(f"{when}:\n            {command} cluster restart {name}{where}")


def _mended(node: LocalNode) -> list[str]:
    """Return what a node that was started has done about damage, by its log."""
    told = []
    for event in node.events(
        "! damaged", "! the beginning of the log is lost", "= repaired", "= silent until the log is what it was"
    ):
        match event["event"]:
            case "! damaged":
                told.append("it found the damage")
            case "! the beginning of the log is lost":
                told.append("it found that the beginning of its log is missing")
            case "= repaired" if event["bytes"]:
                aside = f", and keeps the damaged file in {os.path.relpath(event['aside'])}" if event["aside"] else ""
                told.append(f"fetched {event['bytes']:,} bytes from {event['peer']}{aside}")
            case "= silent until the log is what it was":
                told.append("has no vote until it has again what it had")
            case _:
                pass
    return told


@app.command()
def pause(
    node: NodeArgument,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", min=0.1, help="How long.")] = 5.0,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop a node's process in its tracks (SIGSTOP), and let it go on. Ctrl-C lets it go on at once."""
    cluster, chosen = _open(directory, node)
    _check_runs([chosen], cluster, directory)

    async def hold() -> None:
        try:
            chosen.send_signal(signal.SIGSTOP)
            if output is Output.TABLE:
                say(f"{node} (process {chosen.pid()}) is paused for {seconds:g} s; Ctrl-C lets it go on")
            await asyncio.sleep(seconds)
        finally:
            chosen.send_signal(signal.SIGCONT)

    run_async(hold())
    if output is Output.JSON:
        print_json({"fault": "pause", "node": node, "seconds": seconds})
    else:
        print(f"{node} goes on")


@app.command()
def partition(
    node: NodeArgument,
    others: Annotated[
        list[str] | None, typer.Option("--from", metavar="OTHER", help="Cut it off from this one. [default: all]")
    ] = None,
    one_way: Annotated[
        bool, typer.Option("--one-way", help="NODE is not heard by the others any more, but goes on hearing them.")
    ] = False,
    seconds: SecondsOption = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Cut the connections between a node and others, both ways. Clients still reach all of them."""
    from viewstamp.host.chaos import Fault, FaultKind

    cluster, chosen = _open(directory, node)
    if node in (others or ()):
        raise ConfigError(f"--from {node}: {node} cannot be cut off from itself", remedy="name another node")
    far = [cluster.node(name) for name in others or [name for name in cluster.nodes if name != node]]
    if not far:
        raise ConfigError(f"{node} is alone: there is nobody to cut it off from", remedy="members add brings another")
    until = _until(seconds)

    def cut(peers: Iterable[LocalNode]) -> Fault:
        return Fault(kind=FaultKind.PARTITION, peers={peer.id: peer.address for peer in peers}, until=until)

    faults: dict[str, Fault] = {chosen.id: cut(far)}
    if not one_way:
        faults |= {each.id: cut([chosen]) for each in far}
    _impose(cluster, chosen, faults, directory, add=True)
    names = ", ".join(each.id for each in far)
    done = f"{names} do not hear {node}; it hears them" if one_way else f"{node} is cut off from {names}"
    _told(output, directory, done, seconds, fault="partition", node=node, others=[each.id for each in far])


@app.command("slow-disk")
def slow_disk(
    node: NodeArgument,
    milliseconds: Annotated[
        int, typer.Option("--milliseconds", metavar="MS", min=1, max=60_000, help="How much longer a sync takes.")
    ] = 500,
    seconds: SecondsOption = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Make every sync of a node's disk take longer."""
    from viewstamp.host.chaos import Fault, FaultKind

    cluster, chosen = _open(directory, node)
    fault = Fault(kind=FaultKind.SLOW_DISK, milliseconds=milliseconds, until=_until(seconds))
    _impose(cluster, chosen, {chosen.id: fault}, directory, add=False)
    done = f"every sync of {node} takes {milliseconds} ms longer"
    _told(output, directory, done, seconds, fault="slow-disk", node=node, milliseconds=milliseconds)


@app.command("fill-disk")
def fill_disk(
    node: NodeArgument,
    seconds: SecondsOption = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Have a node find its disk all but full. The real one stays as it is; what is preallocated is still written."""
    from viewstamp.host.chaos import Fault, FaultKind

    cluster, chosen = _open(directory, node)
    fault = Fault(kind=FaultKind.FILL_DISK, until=_until(seconds))
    _impose(cluster, chosen, {chosen.id: fault}, directory, add=False)
    done = f"the disk of {node} is full: it takes appends until its preallocated files are"
    _told(output, directory, done, seconds, fault="fill-disk", node=node)


@app.command()
def heal(directory: LocalDirOption = Path(DEFAULT_DIRECTORY), output: OutputOption = Output.TABLE) -> None:
    """End every pause, partition, slow and full disk. Files that were damaged the nodes repair themselves."""
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
            "\n".join(f"{name}: no {', no '.join(kinds)} any more" for name, kinds in ended.items())
            or "no fault was in force; damaged files are not healed here, see: viewstamp doctor"
        )


def in_force(cluster: LocalCluster) -> dict[str, list[str]]:
    """Return what the nodes of a local cluster are told to do wrong: node to the names of faults."""
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
    """Write each node's fault into its file, and wait until those that run obey; ``add`` to what it has of the kind.

    Raises:
      ConfigError: a node does not obey chaos at all.
      UnavailableError: ``chosen`` does not run, or a node does not obey in time.
    """
    from viewstamp.host.chaos import read_faults, write_faults

    nodes = [cluster.node(name) for name in faults]
    _check_runs([chosen], cluster, directory)
    for node in nodes:
        if not node.settings.node.chaos:
            raise ConfigError(
                f"{node.id} does not obey chaos: {node.file} does not say so",
                remedy="add chaos = true to its [node], and restart it; never where the data matters",
            )
    for node in nodes:
        fault = faults[node.id]
        kept = [each for each in read_faults(node.directory) if add or each.kind != fault.kind]
        write_faults(node.directory, [*(each for each in kept if each.peers != fault.peers), fault])
    run_async(_wait_obeyed(cluster, {node.id: faults[node.id].kind for node in nodes if node.pid() is not None}))


async def _wait_obeyed(cluster: LocalCluster, waiting: dict[str, str]) -> None:
    names, deadline = dict(cluster.target.names), time.monotonic() + OBEY_SECONDS
    async with cluster.target.connect() as client:
        while waiting:
            for status in await client.status():
                name = str(status.get("id") or names.get(status["address"]))
                told = status.get("chaos")
                if name in waiting and status["reachable"] and told is None:
                    raise ConfigError(
                        f"{name} runs, and was started before its settings said that it obeys chaos",
                        remedy=f"restart it: {program()} cluster restart {name}"
                        f"{dir_flag(cluster.directory, DEFAULT_DIRECTORY)}",
                    )
                if waiting.get(name) in {fault["fault"] for fault in told or ()}:
                    del waiting[name]
            if waiting and time.monotonic() > deadline:
                raise UnavailableError(
                    f"{', '.join(waiting)} did not obey within {OBEY_SECONDS:g} s",
                    remedy=f"see {program()} doctor; what they were told stands until `viewstamp chaos heal`",
                )
            if waiting:
                await asyncio.sleep(0.05)


def _told(output: Output, directory: Path, done: str, seconds: float | None, **fields: object) -> None:
    if output is Output.JSON:
        print_json({**fields, "seconds": seconds})
        return
    where, command = dir_flag(directory, DEFAULT_DIRECTORY), program()
    print(done)
    print(f"for {seconds:g} s" if seconds is not None else f"end it:     {command} chaos heal{where}")
    print(f"look at it: {command} doctor{where}")
