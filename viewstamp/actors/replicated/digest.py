"""The chain: a running checksum by which members find that they do not agree, and since which command.

Every actor's name has 64 bits of checksum, two CRCs with different polynomials, over the results of its commands and
over its instances' packed states. The chain takes in every batch, and at its end the checksums of all names that it
touched. So two chains that differ once differ for ever. Which command was the first is told by the *trail*: for each,
32 bits over the chain before its batch and over what the batch's commands came to, up to this one. The trail only
finds the place; that there is one to be found, the chain says.

A state is packed and folded in when its instance has earned it: each command is worth ``CREDIT`` bytes of packing, and
when the credit reaches the size of the state at its last digest, it is spent. A state of up to ``CREDIT`` bytes is
digested after each command; a large one so seldom that it costs no more than that. Nothing here depends on time or on
who restarted when: the budgets are part of a snapshot.

**Versions.** Members whose code differs may hold one state in two shapes, in a rolling upgrade say, and then their
digests differ though nothing is wrong. So chains are compared only between members of equal *lineage*: a checksum over
the versions of the classes in use, and over the index since which they have been in use. A snapshot brings its lineage
along; if the code has changed since, the member gets one that nobody else has. The first command in the log that
carries a higher version than any before begins a new *era*, on every member at this same index: chain and budgets
begin anew, and all members with the same code agree in lineage again.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["CHAIN_MASK", "CREDIT", "MULTIPLIER", "TRAIL_MAX", "derive_lineage", "fingerprint"]

CREDIT = 256
TRAIL_MAX = 65_536
CHAIN_MASK = 0xFFFF_FFFF_FFFF_FFFF
MULTIPLIER = 0x9E37_79B9_7F4A_7C15
"""Odd, so that multiplying by it loses nothing of a 64-bit number."""


def fingerprint(versions: Iterable[tuple[str, int]]) -> bytes:
    """Return a checksum of (name, version of its class in this member's code)."""
    return blake2b(repr(sorted(versions)).encode(), digest_size=16).digest()


def derive_lineage(code: bytes, since: int, before: int = 0) -> int:
    """Return the lineage of ``code`` in use since an index; ``before``: a lineage that this one goes on from."""
    return int.from_bytes(blake2b(b"%b %d %d" % (code, since, before), digest_size=8).digest(), "big")
