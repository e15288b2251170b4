"""Who votes and who learns, as it stands in the log.

The membership record is an ordinary record of the log: in force on every member from the moment it is in
that member's log, and gone when it is cut (protocol rule 15). Its value is JSON with sorted keys.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property

from viewstamp.errors import PeerError
from viewstamp.ids import NodeId

__all__ = ["Membership"]


@dataclass(frozen=True)
class Membership:
    """The voters and the learners of a group, each with the address where it listens.

    ``generation`` counts the changes, for people and logs; nothing is ever refused because of it (as a gate it
    deadlocks: a member that lacks the newest record would refuse the append that brings it).
    """

    voters: dict[NodeId, str]
    learners: dict[NodeId, str] = field(default_factory=dict)
    generation: int = 0

    @cached_property
    def addresses(self) -> dict[NodeId, str]:
        """Every member's address, voters first, each in the order of their ids."""
        return {**dict(sorted(self.voters.items())), **dict(sorted(self.learners.items()))}

    def encode(self) -> bytes:
        """Return the value of the membership record."""
        fields = {"generation": self.generation, "learners": self.learners, "voters": self.voters}
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def decode(cls, value: bytes) -> Membership:
        """Read the value of a membership record.

        Raises:
          PeerError: it is no membership record.
        """
        try:
            fields = json.loads(value)
            return cls(dict(fields["voters"]), dict(fields["learners"]), int(fields["generation"]))
        except (ValueError, KeyError, TypeError) as error:
            raise PeerError(f"no membership record: {value[:100]!r}") from error
