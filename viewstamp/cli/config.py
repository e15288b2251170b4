"""``viewstamp config``: creates settings files, and shows the settings of a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import OutputOption
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program
from viewstamp.terminal.output import Output, print_json, print_table

__all__ = ["NewSetOption", "SetOption", "app", "overrides_of"]

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


@app.command()
def new(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory for the files n1.toml, n2.toml, ...")],
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Number of nodes.")] = 3,
    settings: NewSetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write the settings files of a new local cluster, DIR/n1.toml and so on, with free loopback ports."""
    from viewstamp.config import create_cluster, load_settings, node_file

    names = create_cluster(str(directory), nodes, overrides_of(settings))
    files = {name: node_file(str(directory), name) for name in names}
    made = {name: load_settings(file, environment={}).settings for name, file in files.items()}
    if output is Output.JSON:
        listed = [{"id": name, "file": files[name], "address": made[name].node.listen} for name in names]
        print_json({"cluster_id": made[names[0]].cluster.id, "nodes": listed})
    else:
        print_table(["node", "address", "file"], [(name, made[name].node.listen, files[name]) for name in names])
        print(f"start it: {program()} cluster start{dir_flag(directory, DEFAULT_DIRECTORY)}")


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
    keys = [*keys_of(NodeSettings), *map(actor_key, loaded.settings.actors)]
    allowed = {f"{key.section}.{key.name}": key.allowed for key in keys}
    rows = loaded.rows()
    if output is Output.JSON:
        listed = [
            {"key": key, "value": value, "origin": origin, "allowed": allowed[key]} for key, value, origin in rows
        ]
        print_json({"settings": listed})
    else:
        print_table(
            ["key", "value", "origin", "allowed"],
            [(key, _shown(value), origin, allowed[key]) for key, value, origin in rows],
        )


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={address}" for name, address in value.items()) or "{}"
    return str(value).lower() if isinstance(value, bool) else str(value) if value != "" else '""'
