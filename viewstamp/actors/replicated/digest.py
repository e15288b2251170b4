"""The chain: a running checksum by which members find that their states differ, and since which command.

Each actor's name has 64 bits of checksum, two CRCs with different polynomials, over the results of its commands and
over the packed states of its instances. The chain includes every batch and, after each batch, the checksums of the
names that it touched. So two chains that differ once differ for ever. The *trail* finds the first command that
differed: for each command it has 32 bits over the chain before its batch and over the results and states of the batch
up to this command. The trail only finds the place; the chain decides whether there is a difference.

A state is packed and included when its instance has enough credit: each command adds ``CREDIT`` bytes, and when the
credit reaches the size of the state at its last digest, it is spent. A state of up to ``CREDIT`` bytes is included
after each command; a large state so rarely that packing costs no more than ``CREDIT`` bytes a command. The credit is
part of a snapshot, so it does not depend on time or restarts.

**Versions.** Members with different code, as in a rolling upgrade, may store the same state in two shapes, and
then their digests differ although nothing is wrong. So chains are compared only between members of equal *lineage*: a
checksum over the versions of the classes in use, and over the index since which they are in use. A snapshot includes
its lineage; if the code has changed since, the member gets a lineage of its own. The first command in the log with a
higher version than any before begins a new *era*, on every member at this same index: chain and credits start anew,
and all members with the same code have the same lineage again.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["CHAIN_MASK", "CREDIT", "MULTIPLIER", "TRAIL_MAX", "derive_lineage", "fingerprint"]

CREDIT = 256
TRAIL_MAX = 65_536
CHAIN_MASK = 0xFFFF_FFFF_FFFF_FFFF
MULTIPLIER = 0x9E37_79B9_7F4A_7C15
"""An odd number, because multiplication by it modulo 2**64 is reversible and so loses no information."""


def fingerprint(versions: Iterable[tuple[str, int]]) -> bytes:
    """Return a checksum of the pairs (name, version of its class in this member's code)."""
    return blake2b(repr(sorted(versions)).encode(), digest_size=16).digest()


def derive_lineage(code: bytes, since: int, before: int = 0) -> int:
    """Return the lineage of ``code`` in use since an index; ``before``: the lineage that it continues, 0 = none."""
    return int.from_bytes(blake2b(b"%b %d %d" % (code, since, before), digest_size=8).digest(), "big")
