"""``viewstamp tls``: makes certificates, and shows them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import LocalDirOption, OutputOption
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program
from viewstamp.terminal.output import Output, fitted, print_json, print_table

if TYPE_CHECKING:
    from viewstamp.host.tls import LoadedTls

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="Make and show the certificates of a cluster.", no_args_is_help=True)


@app.command()
def new(
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    clients: Annotated[
        list[str] | None, typer.Option("--client", metavar="NAME", help="Make a certificate for this client too.")
    ] = None,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, max=3650, help="Days until they end.")] = 365,
    renew: Annotated[bool, typer.Option("--renew", help="Make all certificates again; keep the authority.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an authority and a certificate for each settings file of a directory, and switch TLS on in these files.

    Certificates that are there stay as they are. They begin one hour before now, because clocks differ a little.
    Running nodes use renewed certificates without a restart, within a second of their next connection.
    """
    from viewstamp.config.certificates import make_certificates

    made = make_certificates(str(directory), clients=clients or (), days=days, renew=renew)
    rows = [{**_fields(each.tls), "made": each.is_new, "settings": each.settings or None} for each in made]
    if output is Output.JSON:
        print_json({"certificates": rows})
        return
    print_table(
        ["name", "ends", "certificate", ""],
        [(_short(row), row["ends"], _path(row), "made" if row["made"] else "kept") for row in rows],
    )
    if any(each.is_switched_on for each in made):
        print(f"start it: {program()} cluster start{dir_flag(directory, DEFAULT_DIRECTORY)}")
        first = (
            "Nodes that run without TLS have to be stopped first, all of them: TLS and plain connections do not mix."
        )
        print(fitted(first, sys.stdout))


@app.command("replace-authority")
def replace_authority(
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    finish: Annotated[
        bool, typer.Option("--finish", help="Trust only the new authority; certificates of the old one end.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an authority in the place of the present one, for example because a private key was stolen. Nothing stops.

    First the cluster trusts both. Then all certificates are made again, by `viewstamp tls new --renew`. Then --finish
    ends those of the old authority. After each step copy the changed files to all machines: see docs/security.md.
    """
    from viewstamp.config.certificates import drop_old_authority, make_next_authority

    if finish:
        drop_old_authority(str(directory))
    else:
        make_next_authority(str(directory))
    place = directory / "tls" / "ca.pem"
    if output is Output.JSON:
        print_json({"authority": str(place), "finished": finish})
        return
    where = dir_flag(directory, DEFAULT_DIRECTORY)
    if finish:
        text = f"{place} has the new authority only. Copy it to all nodes and clients, and then restart each node,"
        print(fitted(f"{text} one after the other, because connections that are open go on.", sys.stdout))
        return
    text = f"{place} has the old authority and the new one. Copy it to all nodes and clients, and wait until"
    print(fitted(f"{text} `{program()} doctor{where}` finds no problem. Then:", sys.stdout))
    print(f"  {program()} tls new --renew{where}")


@app.command()
def show(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Settings files of nodes. [default: the certificates in DIR/tls]"),
    ] = None,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the name in each certificate, when it ends, and whether it is valid now.

    With ``--output json`` also the cluster, the begin, and the addresses in it.
    """
    from viewstamp.config import load_settings
    from viewstamp.config.certificates import certificates_in
    from viewstamp.errors import ConfigError
    from viewstamp.host.tls import inspect

    found = certificates_in(str(directory)) if not files else []
    for file in files or ():
        tls = load_settings(file, environment={}).settings.tls.files
        if tls is None:
            raise ConfigError(f"{file} has no section [tls]", remedy="make it by `viewstamp tls new`")
        found.append(inspect(tls))
    if not found:
        raise ConfigError(
            f"there are no certificates in {directory / 'tls'}", remedy="make them by `viewstamp tls new`, or name FILE"
        )
    rows = [_fields(each) for each in found]
    if output is Output.JSON:
        print_json({"certificates": rows})
    else:
        print_table(
            ["name", "ends", "", "certificate"],
            [(_short(row), row["ends"], row["state"], _path(row)) for row in rows],
        )


def _short(row: dict[str, Any]) -> str:
    """Return the name without the cluster, because a terminal has 80 columns: "member/n1"."""
    return str(row["name"]).split("/", 3)[3]


def _path(row: dict[str, Any]) -> str:
    path = str(row["certificate"])
    return min(path, os.path.relpath(path), key=len)


def _fields(tls: LoadedTls) -> dict[str, Any]:
    from viewstamp.host.tls import shown_time

    now, validity = time.time(), tls.validity
    days = (validity.ends - now) / 86_400
    state = "not valid yet" if now < validity.begins else "expired" if days <= 0 else f"{days:.0f} days left"
    return {
        "name": str(tls.name),
        "begins": shown_time(validity.begins),
        "ends": shown_time(validity.ends),
        "state": state,
        "hosts": list(tls.hosts),
        "certificate": tls.files.certificate,
        "authority": tls.files.authority,
    }
