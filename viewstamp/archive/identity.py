"""Whether an object is the file that the catalogue means: of which run it is, and what it holds.

A store is shared: another cluster may use the same folder, and a person may put back the wrong object.
"""

from __future__ import annotations

from viewstamp.errors import CorruptionError
from viewstamp.ids import GROUP_0, ClusterId, GroupId, RunId

__all__ = ["check_content", "check_origin", "content"]


def check_origin(
    name: str, found: tuple[ClusterId, GroupId, RunId], expected: tuple[ClusterId, GroupId, RunId]
) -> None:
    """Check the cluster, the group and the run that the description of the object ``name`` has.

    Raises:
      CorruptionError: it is the object of another run.
    """
    if found != expected:
        raise CorruptionError(
            f"run file {name} is that of {_origin(*found)}, not of {_origin(*expected)}",
            path=name,
            expected=_origin(*expected),
            found=_origin(*found),
            remedy="put the right object back; another cluster may use the same folder of the store",
        )


def check_content(name: str, found: str, expected: str) -> None:
    """Compare what the object ``name`` holds by its description with what it holds by the catalogue, both in words.

    Raises:
      CorruptionError: they differ.
    """
    if found != expected:
        raise CorruptionError(
            f"run file {name} holds {found}, and the catalogue has {expected}",
            path=name,
            expected=expected,
            found=found,
            remedy="keep the object, and put an intact copy in its place",
        )


def content(topic: int, first: int, end: int, digest: str) -> str:
    """Return what an object holds, in the words of :func:`check_content`."""
    return f"positions {first} to {end - 1} of topic {topic} with digest {digest}"


def _origin(cluster: ClusterId, group: GroupId, run: RunId) -> str:
    of_group = "" if group == GROUP_0 else f" of group {group}"
    return f"run {run}{of_group} of cluster {cluster}"
