"""The tree of commands, as ``viewstamp --help`` prints it."""

from __future__ import annotations

from typing import Final

import typer

from viewstamp.cli import (
    actor,
    append,
    audit,
    backup,
    bench,
    chaos,
    cluster,
    completion,
    config,
    demo,
    doctor,
    leader,
    members,
    node,
    read,
    recover,
    replay,
    sim,
    sink,
    snapshot,
    status,
    tls,
    token,
    topic,
    wal,
)
from viewstamp.cli.group import CommandGroup
from viewstamp.local.find import AUTHORITY, CERTIFICATE, KEY, use_files

__all__ = ["app"]

_TLS_HELP: Final = "With --cluster: the authority of a cluster with TLS."

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


@app.callback(invoke_without_command=True)
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
        from importlib.metadata import version as version_of

        print(f"viewstamp {version_of('viewstamp')}")
        raise typer.Exit


app.command("demo")(demo.demo)
app.command("demo-spark")(demo.demo_spark)
app.add_typer(cluster.app, name="cluster")
app.add_typer(members.app, name="members")
app.add_typer(leader.app, name="leader")
app.add_typer(chaos.app, name="chaos")
app.add_typer(node.app, name="node")
app.add_typer(config.app, name="config")
app.add_typer(tls.app, name="tls")
app.add_typer(topic.app, name="topic")
app.command("append")(append.append)
app.command("read")(read.read)
app.add_typer(actor.app, name="actor")
app.add_typer(sink.app, name="sink")
app.add_typer(snapshot.app, name="snapshot")
app.add_typer(token.app, name="token")
app.command("audit")(audit.audit)
app.add_typer(backup.app, name="backup")
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.add_typer(wal.app, name="wal")
app.command("replay")(replay.replay)
app.command("recover")(recover.recover)
app.add_typer(bench.app, name="bench")
app.add_typer(sim.app, name="sim")
app.command("completion")(completion.completion)
