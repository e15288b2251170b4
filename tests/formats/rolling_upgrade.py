"""Upgrade a running cluster of real processes node by node: ``python -m tests.formats.rolling_upgrade REVISION``.

The older code is taken from git's history. While node after node is restarted with the newer code, both releases'
clients append, read and call; each upgrade passes through a mixed cluster, with leaders of both releases. At the end
every acknowledged record must be there once and in order, and each log must verify. Otherwise the script prints the
difference and exits with 1. ``test_rolling_upgrade.py`` does the same with fewer changes of the leader.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from viewstamp.cli import main

ROOT = Path(__file__).parents[2]
NODES = ("n1", "n2", "n3")
BATCH = 200
"""Records that each release's client appends at each step."""


class Release:
    """The command line of one release, run from its sources in a process for each command."""

    def __init__(self, name: str, sources: Path, cluster: Path) -> None:
        self.name = name
        self._sources = sources
        self._cluster = cluster

    def run(self, *arguments: str, path: str = "") -> str:
        """Run a command on the cluster, or on the node directory ``path``; return its output.

        Raises:
          AssertionError: the command fails.
        """
        where = [str(self._cluster / path)] if path else ["--dir", str(self._cluster)]
        code, printed, errors = self._run([*arguments, *where])
        assert code == 0, f"{self.name}: {' '.join(arguments)} ended with {code}\n{printed}{errors}"
        return printed

    def _run(self, arguments: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "viewstamp", *arguments],
            cwd=self._sources,
            env={**os.environ, "PYTHONPATH": str(self._sources)},
            capture_output=True,
            text=True,
            timeout=180,
        )
        return done.returncode, done.stdout, done.stderr

    def refused(self, *arguments: str) -> str:
        """Run a command that has to fail; return its error message.

        Raises:
          AssertionError: it succeeds.
        """
        code, printed, errors = self._run([*arguments, "--dir", str(self._cluster)])
        assert code != 0, f"{self.name}: {' '.join(arguments)} succeeded\n{printed}"
        return errors

    def append(self, first: int) -> None:
        lines = self._cluster.parent / "lines"
        lines.write_text("".join(f"record {number}\n" for number in range(first, first + BATCH)), encoding="utf-8")
        self.run("append", "orders", str(lines))

    def read(self) -> list[str]:
        return self.run("read", "orders").splitlines()


class ThisRelease(Release):
    """The command line of this tree, run in this process, because most of a command's time is its start."""

    def _run(self, arguments: list[str]) -> tuple[int, str, str]:
        printed, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with redirect_stdout(printed), redirect_stderr(errors):
            code = main.run(arguments)
        texts = []
        for stream in (printed, errors):
            stream.seek(0)
            texts.append(stream.read())
        return code, *texts


def upgrade_from_revision() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the older release: a commit or a tag")
    revision = parser.parse_args().revision
    with tempfile.TemporaryDirectory() as directory:
        try:
            upgrade(unpack(revision, Path(directory) / "older"), Path(directory) / "cluster")
        except AssertionError as error:
            sys.exit(str(error))


def unpack(revision: str, directory: Path) -> Path:
    """Write the package of an older revision into a new directory, and return it."""
    directory.mkdir()
    archive = subprocess.run(["git", "archive", revision, "viewstamp"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    return directory


def upgrade(sources: Path, cluster: Path, leaders: Sequence[Sequence[str]] = (NODES,) * 4) -> None:
    """Restart each node with the newer release; check after each step that no record is lost.

    Args:
      sources: of the older release.
      cluster: a directory for the nodes.
      leaders: the nodes that lead after each step: none, n1, n2 and n3 upgraded. By default every node leads once
        after each step, so both releases lead and follow.

    Raises:
      AssertionError: a command failed, or a record is lost, doubled or at another place.
    """
    older, newer = Release("older", sources, cluster), ThisRelease("newer", ROOT, cluster)
    try:
        _upgrade(older, newer, leaders)
    finally:
        newer.run("cluster", "stop")


def _upgrade(older: Release, newer: Release, leaders: Sequence[Sequence[str]]) -> None:
    count = 0
    older.run("cluster", "start", "--nodes", str(len(NODES)))
    older.run("topic", "create", "orders")
    for step, (node, leading) in enumerate(zip(("", *NODES), leaders, strict=True)):
        if node:
            newer.run("cluster", "restart", node)
        for leader in leading:
            if json.loads(newer.run("leader", "show", "--output", "json"))["leader"] != leader:
                newer.run("leader", "transfer", leader)
            for client in (older, newer):
                client.append(count)
                count += BATCH
        expected = [f"record {number}" for number in range(count)]
        for client in (older, newer):
            check(f"{client.name} reads after step {step}", client.read(), expected)
        sys.stdout.write(f"step {step}: {node or 'none'} upgraded, {count:,} records\n")
        sys.stdout.flush()
    newer.run("snapshot", "create")
    newer.run("cluster", "stop")
    for node in NODES:
        newer.run("wal", "verify", path=node)
    newer.run("cluster", "start")
    check("after a restart", newer.read(), expected)
    sys.stdout.write("every acknowledged record is there once, in order, for both releases\n")


def spread_after_upgrade(sources: Path, cluster: Path) -> None:
    """Create a topic with streams while a member runs a release that knows groups only, and again after its upgrade.

    Raises:
      AssertionError: the first attempt succeeds, a later command fails, or a record is lost.
    """
    older, newer = Release("older", sources, cluster), ThisRelease("newer", ROOT, cluster)
    create = "topic", "create", "spread", "--streams", "2", "--timeout", "60"
    try:
        older.run("cluster", "start", "--nodes", str(len(NODES)))
        older.run("topic", "create", "orders")
        older.append(0)
        older.run("group", "place", "s1", "--timeout", "60")
        for node in NODES[:2]:
            newer.run("cluster", "restart", node)
        errors = "unknown request"
        while "unknown request" in errors:  # The older member leads, which it may at any time.
            if json.loads(newer.run("leader", "show", "--output", "json"))["leader"] != NODES[0]:
                newer.run("leader", "transfer", NODES[0])
            errors = newer.refused(*create)
        assert f"{NODES[2]}: runs a release that cannot read records of kind" in errors, errors
        assert json.loads(newer.run("topic", "list", "--output", "json"))["spread_topics"] == []
        older.append(BATCH)
        newer.run("cluster", "restart", NODES[2])
        newer.run(*create)
        newer.run("cluster", "stop")
        newer.run("cluster", "start")
        assert [
            each["name"] for each in json.loads(newer.run("topic", "list", "--output", "json"))["spread_topics"]
        ] == ["spread"]
        older.append(2 * BATCH)  # A client of the release before goes on with its topics.
        expected = [f"record {number}" for number in range(3 * BATCH)]
        check("the newer release reads after the upgrade", newer.read(), expected)
        check("the older release reads after the upgrade", older.read(), expected)
    finally:
        newer.run("cluster", "stop")


def check(what: str, found: list[str], expected: list[str]) -> None:
    if found != expected:
        differing = next((at for at, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), None)
        text = f"{what}: {len(found)} records, expected {len(expected)}; the first that differs is {differing}"
        raise AssertionError(text)


if __name__ == "__main__":
    upgrade_from_revision()
