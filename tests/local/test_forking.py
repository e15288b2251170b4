"""What a fork leaves behind in the data directories of the new members."""

from __future__ import annotations

from pathlib import Path

from viewstamp.local.forking import remove_empty_directories


def test_empty_directories_of_groups_are_removed_and_others_stay(tmp_path: Path) -> None:
    """The old files of a group that the member does not host any more were moved aside."""
    for place in ("groups/7/wal", "groups/7/snapshots", "groups/9/wal", "new-cluster/groups/9/wal", "wal"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "groups" / "9" / "wal" / "segment").write_bytes(b"x")
    remove_empty_directories([str(tmp_path)])
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_dir()) == [
        "groups",
        "groups/9",
        "groups/9/wal",
        "wal",
    ]
