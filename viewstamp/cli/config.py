"""``viewstamp config``: creates settings files, and shows the settings of a node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import OutputOption
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program
from viewstamp.terminal.output import Output, print_json, print_table

if TYPE_CHECKING:
    from viewstamp.config.model import Key
    from viewstamp.ids import NodeId

__all__ = ["MemberOption", "NewSetOption", "SetOption", "app", "members_of", "overrides_of"]

app = typer.Typer(cls=CommandGroup, help="Create settings files, and show settings.", no_args_is_help=True)

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override file and environment."),
]
NewSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Write this setting into the files of a new cluster."),
]


def overrides_of(settings: list[str] | None) -> dict[str, str]:
    """Return the values of ``--set`` by ``section.key``. Raises ConfigError for a text without ``=``."""
    from viewstamp.errors import ConfigError

    overrides = {}
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text} has no value", remedy="write --set section.key=value")
        overrides[name] = value
    return overrides


MemberOption = Annotated[
    list[str] | None,
    typer.Option("--member", metavar="NAME=HOST:PORT", help="A node on another machine; repeat it for each."),
]


def members_of(texts: list[str]) -> dict[str, str]:
    """Return the addresses of ``--member`` by name. Raises ConfigError for a wrong one, and for a name twice."""
    from viewstamp.errors import ConfigError
    from viewstamp.host.address import parse_address

    addresses: dict[str, str] = {}
    for text in texts:
        name, equals, address = text.partition("=")
        if not equals or name in addresses:
            problem = f"names {name} twice" if equals else "has no address"
            raise ConfigError(f"--member {text} {problem}", remedy="write --member NAME=HOST:PORT, once for each node")
        parse_address(address)
        addresses[name] = address
    return addresses


@app.command()
def new(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory for the files n1.toml, n2.toml, ...")],
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", help="Number of nodes on this machine. [default: 3]")
    ] = None,
    members: MemberOption = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Write the file of this node only.")
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="Id of the new cluster. [default: a random one]")
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            "--like", metavar="FILE", help="Settings file of a member: --member names a node that joins its cluster."
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option("--data-dir", metavar="DIR", help="Each node NAME of --member keeps its data in DIR/NAME."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Make an authority and certificates too, and write [tls], for --member.")
    ] = False,
    insecure_network: Annotated[
        bool, typer.Option("--insecure-network", help="Allow --member on other machines without TLS: last resort.")
    ] = False,
    settings: NewSetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write the settings files of a new cluster: N nodes on this machine, or each --member on a machine of its own."""
    from viewstamp.config import create_cluster, load_settings, node_file

    if members:
        if nodes is not None:
            raise typer.BadParameter("--nodes is for a cluster on this machine, --member for several: give one of them")
        files = _machine_files(
            directory, members, node, cluster_id, like, data_dir, settings, tls=tls, insecure_network=insecure_network
        )
    elif node or cluster_id or like or data_dir or tls or insecure_network:
        raise typer.BadParameter(
            "--node, --cluster-id, --like, --data-dir, --tls and --insecure-network need --member NAME=HOST:PORT"
        )
    else:
        names = create_cluster(str(directory), 3 if nodes is None else nodes, overrides_of(settings))
        files = {name: node_file(str(directory), name) for name in names}
    made = {name: load_settings(file, environment={}).settings for name, file in files.items()}
    some = next(iter(made.values()))
    if output is Output.JSON:
        listed = [{"id": name, "file": files[name], "address": made[name].node.advertise} for name in made]
        print_json({"cluster_id": some.cluster.id, "nodes": listed})
        return
    print_table(["node", "address", "file"], [(name, made[name].node.advertise, files[name]) for name in made])
    if not members:
        print(f"start it: {program()} cluster start{dir_flag(directory, DEFAULT_DIRECTORY)}")
        return
    print(f"cluster {some.cluster.id}")
    if some.tls.files is not None and os.path.exists(some.tls.files.certificate):
        print(f"certificates: {directory / 'tls'}; keep ca.key off the nodes")
    elif some.tls.files is not None:
        print(f"make its certificate where ca.key is: {program()} tls new --dir DIR")
    print(f"read each file, copy it to its machine, and start it there:\n  {program()} node run --config FILE")
    if like is not None:
        joining = " ".join(f"{name} {made[name].node.advertise}" for name in made)
        voters = ",".join(some.cluster.members.values())
        print(f"then add it: {program()} members add {joining} --cluster {voters}")


def _machine_files(
    directory: Path,
    members: list[str],
    node: str | None,
    cluster_id: str | None,
    like: Path | None,
    data_dir: str | None,
    settings: list[str] | None,
    *,
    tls: bool,
    insecure_network: bool,
) -> dict[NodeId, str]:
    """Write the files for ``--member``; return the path of each."""
    from viewstamp.config import create_machine_files, create_machine_like, load_settings, make_certificates
    from viewstamp.config.certificates import check_library
    from viewstamp.ids import NodeId

    addresses = members_of(members)
    if tls and node:
        raise typer.BadParameter(
            "--tls and --node are both given: make all files in one place, because one authority signs them"
        )
    if like is None:
        if tls:
            check_library()
        files = create_machine_files(
            str(directory),
            addresses,
            only=node or "",
            cluster_id=cluster_id or "",
            data_dir=data_dir or "",
            tls=tls,
            insecure_network=insecure_network,
            settings=overrides_of(settings),
        )
        if tls:
            make_certificates(str(directory))
        return files
    if len(addresses) != 1 or node or cluster_id or data_dir or settings or tls or insecure_network:
        raise typer.BadParameter(
            "--like takes everything from FILE except one --member NAME=HOST:PORT: drop the other options"
        )
    [(name, address)] = addresses.items()
    file = create_machine_like(str(directory), name, address, load_settings(like, environment={}), str(like))
    if (directory / "tls" / "ca.key").exists():
        make_certificates(str(directory))
    return {NodeId(name): file}


@app.command()
def show(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The node's settings file.")],
    settings: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the settings that a node would use, and the origin of each."""
    from viewstamp.config import load_settings
    from viewstamp.config.model import NodeSettings, actor_key, keys_of

    loaded = load_settings(config, overrides=overrides_of(settings))
    keys = {
        f"{key.section}.{key.name}": key for key in [*keys_of(NodeSettings), *map(actor_key, loaded.settings.actors)]
    }
    rows = loaded.rows()
    if output is Output.JSON:
        listed = [
            {"key": key, "value": value, "origin": origin, "allowed": keys[key].allowed} for key, value, origin in rows
        ]
        print_json({"settings": listed})
    else:
        print_table(
            ["key", "value", "origin", "allowed"],
            [(key, _shown(keys[key], value), origin, keys[key].allowed) for key, value, origin in rows],
        )


def _shown(key: Key, value: object) -> str:
    return "{}" if value == {} else key.show(value) or '""'
