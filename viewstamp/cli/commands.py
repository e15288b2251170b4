"""The tree of commands, as ``viewstamp --help`` prints it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.ids import RELEASE
from viewstamp.local.find import AUTHORITY, CERTIFICATE, KEY, use_files

__all__ = ["command_tree"]

_TLS_HELP: Final = "With --cluster: the authority of a cluster with TLS."

_COMMANDS: Final = {
    "demo": "demo:demo",
    "demo-spark": "demo:demo_spark",
    "demo-archive": "demo:demo_archive",
    "cluster": "cluster",
    "members": "members",
    "group": "groups",
    "stream": "stream",
    "leader": "leader",
    "chaos": "chaos",
    "node": "node",
    "config": "config",
    "tls": "tls",
    "topic": "topic",
    "append": "append:append",
    "read": "read:read",
    "get": "keyed:get",
    "scan": "keyed:scan",
    "actor": "actor",
    "sink": "sink",
    "snapshot": "snapshot",
    "token": "token",
    "audit": "audit:audit",
    "backup": "backup",
    "archive": "archive",
    "status": "status:status",
    "doctor": "doctor:doctor",
    "wal": "wal",
    "replay": "replay:replay",
    "recover": "recover:recover",
    "reshard": "reshard:reshard",
    "bench": "bench",
    "sim": "sim",
    "completion": "completion:completion",
}
"""The module of each command, in the order of the help: with the function of a single command, or with a group."""


def command_tree(first: str = "") -> typer.Typer:
    """Return the commands; if ``first`` is the name of one, or of a group, only that one.

    The whole tree imports every module of this package and makes a parser for each of 96 commands, which takes longer
    than most commands do.
    """
    app = typer.Typer(
        cls=CommandGroup,
        name="viewstamp",
        help="A replicated log: nothing acknowledged is lost.",
        epilog="Start with: viewstamp demo",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback(invoke_without_command=True)(_root)
    for name in [first] if first in _COMMANDS else _COMMANDS:
        module, _, function = _COMMANDS[name].partition(":")
        found = import_module(f"viewstamp.cli.{module}")
        if function:
            app.command(name)(getattr(found, function))
        else:
            app.add_typer(found.app, name=name)
    return app


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version."),
    authority: str = typer.Option("", "--tls-authority", metavar="FILE", help=_TLS_HELP, envvar=AUTHORITY),
    certificate: str = typer.Option(
        "", "--tls-certificate", metavar="FILE", help="This client's certificate.", envvar=CERTIFICATE
    ),
    key: str = typer.Option("", "--tls-key", metavar="FILE", help="Its private key.", envvar=KEY),
) -> None:
    use_files(authority, certificate, key)
    if version:
        print(f"viewstamp {RELEASE}")
        raise typer.Exit
