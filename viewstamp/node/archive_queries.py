"""The queries about topics with archive settings; ``state_machine.py`` has the others."""

from __future__ import annotations

from dataclasses import dataclass

from viewstamp.ids import Position
from viewstamp.node.state_machine import Query

__all__ = ["DueRun", "DueRunsQuery", "IsArchivingQuery", "UnneededRunsQuery"]


@dataclass(frozen=True, slots=True)
class DueRun:
    """Records of a topic that its archive settings let the leader archive now.

    Attributes:
      topic: the name of the topic.
      end: the position before which they are.
      delay: the archive delay of the run, in microseconds of log time.
      is_urgent: whether the log is nearly full, so that the run is not written slowly.
    """

    topic: str
    end: Position
    delay: int
    is_urgent: bool


@dataclass(frozen=True, slots=True)
class DueRunsQuery(Query[list[DueRun]]):
    """The runs that are due, at most one of each topic, in the order in which the topics were created.

    Attributes:
      now: the log time of a record that would be appended now, in microseconds.
      is_pressed: whether the log is nearly full, so that records of any age are archived.
      run_bytes: bytes of log for which a run is due without a wait.
      wait: microseconds for which records that are old enough wait for others at most; 24 times that if half of all
        possible runs exist.
    """

    now: int
    is_pressed: bool
    run_bytes: int
    wait: int


@dataclass(frozen=True, slots=True)
class UnneededRunsQuery(Query[list[str]]):
    """The names of the topics with a run that is dropped, or whose records are all deleted."""


@dataclass(frozen=True, slots=True)
class IsArchivingQuery(Query[bool]):
    """Whether any topic has its archive on, or has a run."""
