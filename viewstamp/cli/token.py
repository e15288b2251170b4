"""``viewstamp token``: creates, lists, rotates and revokes tokens."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption, age
from viewstamp.errors import ConfigError
from viewstamp.local.find import find_cluster
from viewstamp.terminal.output import Output, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.client.results import TokenInfo

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="Create, list, rotate and revoke tokens.", no_args_is_help=True)

RoleOption = Annotated[
    list[str],
    typer.Option(
        "--role",
        metavar="ROLE",
        help="read:NAME, append:NAME or call:NAME, where NAME is a topic, sink or actor and may end with * for all that"
        " begin so; or administer. May be given several times.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write the token to a new file (mode 0600); do not print it."),
]
TokenArgument = Annotated[str, typer.Argument(metavar="TOKEN", help="The id or the name of a token.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for people, e.g. the program that will use it.")],
    role: RoleOption,
    expires: Annotated[
        float | None, typer.Option("--expires", metavar="AGE", parser=age, help="End after this time, e.g. 30d.")
    ] = None,
    out: OutOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a token and print it once. The first one with the role administer turns access control on, for good."""
    _check_new(out)
    info, text = find_cluster(directory, cluster).ask(
        lambda client: client.create_token(name, role, expire_seconds=round(expires or 0), timeout=timeout)
    )
    _hand_over(info, text, out, output)
    if not info.is_on:
        say("access control is off until a token with the role administer is created: any client may do everything")


@app.command()
def rotate(
    token: TokenArgument,
    keep_old: Annotated[
        float | None,
        typer.Option("--keep-old", metavar="AGE", parser=age, help="The older secret stays valid this long, e.g. 24h."),
    ] = None,
    out: OutOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a token a new secret and print it once. The older secret ends at once, or after --keep-old."""
    _check_new(out)
    info, text = find_cluster(directory, cluster).ask(
        lambda client: client.rotate_token(token, keep_seconds=round(keep_old or 0), timeout=timeout)
    )
    _hand_over(info, text, out, output)


@app.command()
def revoke(
    token: TokenArgument,
    old_secret: Annotated[
        bool, typer.Option("--old-secret", help="End only the secret before the newest one, after a rotation.")
    ] = False,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """End a token for good. Its open connections may do nothing any more when this command has returned."""
    info = find_cluster(directory, cluster).ask(
        lambda client: client.revoke_token(token, only_old=old_secret, timeout=timeout)
    )
    if output is Output.JSON:
        print_json(_described(info))
    else:
        print(f"the older secret of token {info.name} has ended" if old_secret else f"token {info.name} has ended")


@app.command("list")
def list_tokens(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the tokens with their roles, those that have ended too. Secrets are not shown, because none is stored."""
    infos = find_cluster(directory, cluster).ask(lambda client: client.list_tokens(timeout=timeout))
    if output is Output.JSON:
        print_json({"tokens": [_described(info) for info in infos], "is_on": any(info.is_on for info in infos)})
        return
    rows = [(info.name, info.id, " ".join(info.roles), _day(info.created), _state(info)) for info in infos]
    print_table(
        ["token", "id", "roles", "created", "state"],
        rows,
        empty="no tokens, so any client may do everything: viewstamp token create NAME --role administer",
    )


def _check_new(out: Path | None) -> None:
    """Check before the request that the file can be created, because the token is shown only once."""
    if out is None:
        return
    if out.exists():
        raise ConfigError(f"{out} exists", remedy="name a new file, because a token in it would be lost")
    if not os.access(out.parent, os.W_OK):
        raise ConfigError(f"no file can be created in {out.parent}", remedy="name another directory")


def _hand_over(info: TokenInfo, text: str, out: Path | None, output: Output) -> None:
    from viewstamp.local.token import write_token

    if out is not None:
        write_token(str(out), text)
    if output is Output.JSON:
        print_json({**_described(info), **({"token": text} if out is None else {"file": str(out)})})
    elif out is not None:
        print(f"token {info.name} ({info.id}) is in {out}")
    else:
        print(text)
        say("this is the only time that the token is shown; programs take it from VIEWSTAMP_TOKEN or --token-file")


def _described(info: TokenInfo) -> dict[str, object]:
    return {
        "id": info.id,
        "name": info.name,
        "roles": list(info.roles),
        "created": info.created,
        "expires": info.expires or None,
        "ended": info.ended or None,
        "old_secret_until": info.old_until or None,
        "is_on": info.is_on,
    }


def _state(info: TokenInfo) -> str:
    if info.ended:
        return f"ended {_day(info.ended)}"
    older = f", older secret until {_day(info.old_until)}" if info.old_until else ""
    return (f"until {_day(info.expires)}" if info.expires else "valid") + older


def _day(log_time: int) -> str:
    return f"{datetime.fromtimestamp(log_time / 1e6, UTC):%Y-%m-%d %H:%M}"
