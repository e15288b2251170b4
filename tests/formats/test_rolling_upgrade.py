"""A running cluster is upgraded node by node from an earlier commit: two releases side by side."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.formats.rolling_upgrade import ROOT, spread_after_upgrade, unpack, upgrade
from tests.processes import none_left

OLDER = "705a60d87bc27b8636f2a2ad2a4ae2fb923440a0"
"""The last commit before TLS, tokens and backups. Its nodes and those of this tree have to work in one cluster."""

WITHOUT_STREAMS = "64a6926be6302c34be76a9442a84020a452ee885"
"""The last commit before topics with streams."""

LEADERS = (["n1"], ["n1", "n2"], ["n2", "n3"], ["n3"])
"""While the releases are mixed, a node of each leads once."""


def has_history() -> bool:
    """Return whether git has the older commits: a shallow clone or an unpacked archive does not."""
    command = ["git", "cat-file", "-e", f"{OLDER}^{{commit}}"]
    return shutil.which("git") is not None and subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not has_history(), reason=f"git has no commit {OLDER[:7]} here, for example in a shallow clone")
def test_no_record_is_lost_while_two_releases_run_in_one_cluster(tmp_path: Path) -> None:
    """The full form, in which every node leads after each step: ``python -m tests.formats.rolling_upgrade 705a60d``."""
    with none_left(tmp_path):
        upgrade(unpack(OLDER, tmp_path / "older"), tmp_path / "cluster", LEADERS)


@pytest.mark.slow
@pytest.mark.skipif(not has_history(), reason=f"git has no commit {OLDER[:7]} here, for example in a shallow clone")
def test_a_member_of_the_release_before_refuses_the_probe_for_a_topic_with_streams(tmp_path: Path) -> None:
    with none_left(tmp_path):
        spread_after_upgrade(unpack(WITHOUT_STREAMS, tmp_path / "older"), tmp_path / "cluster")
