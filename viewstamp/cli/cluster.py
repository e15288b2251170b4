"""``viewstamp cluster``: starts and stops a cluster of processes on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from viewstamp.cli.config import NewSetOption, overrides_of
from viewstamp.cli.fork import fork
from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import LocalDirOption, OutputOption, TimeoutOption
from viewstamp.errors import ViewstampError
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program
from viewstamp.terminal.output import Output, print_json, print_table, say

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="Start and stop a cluster of processes on this machine.", no_args_is_help=True)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node: n1, n2, ...")]

app.command()(fork)


@app.command()
def start(
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", help="Size of a new cluster. [default: 3]")
    ] = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    settings: NewSetOption = None,
    tls: Annotated[bool, typer.Option("--tls", help="Give a new cluster certificates: see `viewstamp tls`.")] = False,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start all nodes that are down, and return when every node is RUNNING. Ctrl-C stops the nodes that it started."""
    from viewstamp.cli.chaos import in_force
    from viewstamp.demo.directory import adopt
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.terminal.loop import run_async

    adopt(os.path.abspath(directory))
    cluster = LocalCluster.open_or_create(directory, nodes, overrides_of(settings), tls=tls)
    for node, faults in in_force(cluster).items():
        say(f"{node} still has faults injected by `viewstamp chaos`: {', '.join(faults)}; `chaos heal` ends them")
    command, where = program(), dir_flag(directory, DEFAULT_DIRECTORY)
    try:
        started = {node.id for node in run_async(cluster.start(timeout))}
    except ViewstampError:
        running = [str(node.id) for node in cluster.nodes.values() if node.pid() is not None]
        if running and output is Output.TABLE:
            say(f"still running: {', '.join(running)}; to stop them: `{command} cluster stop{where}`")
        raise
    for outsider in cluster.outsiders if output is Output.TABLE else ():
        say(
            f"{outsider.id} runs and is no member: `{command} members add {outsider.id}{where}` adds it, "
            f"`{command} members remove {outsider.id}{where}` stops it and sets its settings aside"
        )
    if output is Output.JSON:
        listed = [
            {"id": node.id, "address": node.address, "pid": node.pid(), "started": node.id in started}
            for node in cluster.nodes.values()
        ]
        outsiders = [node.id for node in cluster.outsiders]
        fields = {"cluster_id": cluster.id, "directory": cluster.directory, "no_members": outsiders}
        print_json({**fields, "nodes": listed})
        return
    print_table(
        ["node", "address", "process", ""],
        [
            (node.id, node.address, str(node.pid()), "started" if node.id in started else "already running")
            for node in cluster.nodes.values()
        ],
    )
    print("All nodes are RUNNING. Try:")
    if any(node.settings.actors for node in cluster.nodes.values()):
        print(f"  {command} actor list{where}")
    print(f"  {command} topic create orders{where}")
    print(f"  echo hello | {command} append orders{where}")
    print(f"  {command} read orders{where}")


@app.command()
def stop(
    nodes: Annotated[list[str] | None, typer.Argument(metavar="NODE", help="Only these nodes. [default: all]")] = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop all nodes, or only some, after their last writes are synced. Their data stays."""
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.terminal.loop import run_async

    cluster = LocalCluster.open(directory)
    chosen = [cluster.node(name) for name in nodes or ()]
    stopped = [node.id for node in run_async(cluster.stop(timeout, chosen))]
    if output is Output.JSON:
        print_json({"stopped": stopped})
    else:
        print(f"stopped {', '.join(stopped)}" if stopped else "no node was running")


@app.command()
def status(
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    timeout: TimeoutOption = 3.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the process and the state of each node. Exits with 3 if no node answers."""
    from viewstamp.cli.status import show
    from viewstamp.local.cluster import LocalCluster

    cluster = LocalCluster.open(directory)
    processes = {str(name): node.pid() for name, node in cluster.nodes.items()}
    show(cluster.target, output, processes=processes, timeout=timeout)


@app.command()
def kill(
    node: NodeArgument,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Kill a node with SIGKILL, and return when its process has ended."""
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.terminal.loop import run_async

    ran = run_async(LocalCluster.open(directory).node(node).kill(timeout))
    if output is Output.JSON:
        print_json({"id": node, "killed": ran})
    else:
        print(f"killed {node}" if ran else f"{node} was not running")


@app.command()
def restart(
    node: NodeArgument,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start a node, or restart it if it runs, and return when it is RUNNING."""
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.terminal.loop import run_async

    cluster = LocalCluster.open(directory)
    chosen = cluster.node(node)

    async def stop_and_start() -> bool:
        ran = await chosen.stop(timeout)
        cluster.spawn(chosen)
        await cluster.wait_running([chosen], timeout)
        return ran

    ran = run_async(stop_and_start())
    if output is Output.JSON:
        print_json({"id": node, "pid": chosen.pid(), "was_running": ran})
    else:
        print(f"{node} is RUNNING (process {chosen.pid()})")
