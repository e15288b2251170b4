"""Runs a command, and turns every error into a message and an exit code."""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, TextIO

from viewstamp.errors import CommandError, StorageError, ViewstampError
from viewstamp.local.node_process import plain_config, run_process

__all__ = ["main", "run"]

INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process, and exit."""
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_stdout()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Errors are printed, not raised."""
    as_json = _asks_for_json(arguments)
    try:
        if (config := plain_config(arguments)) is not None:
            run_process(config, {})
            return 0
        # Imported here, because loading it takes the longest and Ctrl-C must be handled meanwhile.
        import typer

        from viewstamp.cli.commands import command_tree
        from viewstamp.cli.completion import COMPLETE_VARIABLE, register

        if COMPLETE_VARIABLE in os.environ:
            register()

        tree = typer.main.get_command(command_tree(next(iter(arguments), "")))
        result = tree.main(list(arguments), prog_name="viewstamp", standalone_mode=False)
    except ViewstampError as error:
        kind = error.kind if isinstance(error, CommandError) else None
        return _report(type(error).__name__, error.message, error.remedy, error.exit_code, as_json=as_json, kind=kind)
    except KeyboardInterrupt:
        return _report("Interrupted", "interrupted", "", INTERRUPTED, as_json=as_json)
    except BrokenPipeError:
        _give_up_stdout()
        return 0
    except SystemExit as ending:
        # The parser turns a closed pipe into exit code 1, which here means a failed proof.
        if not isinstance(ending.__context__, BrokenPipeError):
            raise
        _give_up_stdout()
        return 0
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        remedy = "check that the path exists, that this user may use it, and that the disk has space"
        return _report(StorageError.__name__, message, remedy, StorageError.exit_code, as_json=as_json)
    except Exception as error:
        return _report_unforeseen(error, as_json=as_json)
    if result == INTERRUPTED:  # Some versions of the parser return this for Ctrl-C; others raise Abort.
        return _report("Interrupted", "interrupted", "", INTERRUPTED, as_json=as_json)
    return result if isinstance(result, int) else 0


def _report_unforeseen(error: Any, *, as_json: bool) -> int:
    # The parser's errors are recognised by their attributes, because their classes differ between its versions.
    if type(error).__name__ == "Abort":
        return _report("Interrupted", "interrupted", "", INTERRUPTED, as_json=as_json)
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "viewstamp"
        if type(error).__name__ == "NoArgsIsHelpError":
            _say(error.format_message())
            return 2
        message = error.format_message().replace("Value error, ", "").removeprefix("Invalid value: ")
        return _report("UsageError", message, f"see {path} --help", error.exit_code, as_json=as_json)
    if not as_json:
        _say("".join(traceback.format_exception(error)).rstrip())
    remedy = "this is a bug in viewstamp: please report it with what is above"
    return _report(type(error).__name__, str(error), remedy, 1, as_json=as_json)


def _report(name: str, message: str, remedy: str, code: int, *, as_json: bool, kind: str | None = None) -> int:
    """Print an error and return ``code``. ``kind``: the class of the exception that an actor's method raised."""
    from viewstamp.terminal.output import fitted

    if as_json:
        fields = {"error": name, "message": message, "remedy": remedy}
        if kind is not None:
            fields["kind"] = kind
        _say(json.dumps(fields, ensure_ascii=False))
    else:
        _say(fitted(f"viewstamp: {message}", sys.stderr, indent="  "))
        if remedy:
            _say(fitted(f"  {remedy}", sys.stderr, indent="  "))
    return code


def _say(text: str) -> None:
    """Print to stderr. If that fails, the exit code stays as it is, and is the only message."""
    if sys.stderr is None:
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _give_up(sys.stderr)


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Return whether errors are to be JSON. Looks at the raw arguments, because parsing them may be the failure."""
    following = dict(itertools.pairwise(arguments))
    return "--output=json" in arguments or following.get("--output") == "json"


def _give_up_stdout() -> None:
    """Drop the rest of the output, because the reader has closed the pipe, as in ``viewstamp read ... | head``."""
    _give_up(sys.stdout)


def _give_up(stream: TextIO) -> None:
    """Point a stream at /dev/null, so that the interpreter's last flush cannot change the exit code to 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
