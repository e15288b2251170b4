"""Proofs that a node runs on a certain data directory, and the short public name (fingerprint) of an incarnation.

An incarnation is sent from peer to peer only. Status, errors and logs show its fingerprint, because a process that
sends a member's incarnation is treated as that member.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

__all__ = [
    "CHALLENGE_BYTES",
    "IDENTITY_FIELDS",
    "administrator_proof",
    "directory_proof",
    "fingerprint",
    "hello_proof",
    "identity_fields",
    "identity_proof",
]

CHALLENGE_BYTES = 16
"""The length of a challenge, and of the proof that answers it."""


IDENTITY_FIELDS = ("proof", "directory", "directory_proof")
"""The fields of WELCOME, and of the OK to STATUS, that answer a challenge."""


def identity_fields(challenge: bytes, incarnation: str, directory_id: str) -> dict[str, object]:
    """Return the answer to a challenge; {} if there is none.

    ``proof`` is None for a node that replays its log, because its ``incarnation`` is not known yet (""). There is a
    ``directory_proof`` if the directory has an id that a copy lacks. Neither shows anything to a caller that cannot
    read the directory; older releases sent the directory's path too.
    """
    if not challenge:
        return {}
    if not incarnation:
        return {"proof": None}
    fields: dict[str, object] = {"proof": identity_proof(incarnation, challenge)}
    if directory_id:
        fields["directory_proof"] = directory_proof(incarnation, directory_id, "", challenge)
    return fields


def identity_proof(incarnation: str, challenge: bytes) -> bytes:
    """Return the 16 bytes that only a process which has read ``incarnation`` can answer ``challenge`` with.

    A caller that can read a data directory compares the proof with its own computation: if they are equal, the process
    that answered runs on that directory, or on a copy of it. The incarnation itself is never sent to a client, because
    a process that knows the incarnation of a member passes for that member.

    Args:
      incarnation: as the control file of the directory holds it.
      challenge: 16 random bytes, new for each question, so that no recorded answer fits.
    """
    return blake2b(challenge, key=incarnation.encode()[:64], digest_size=CHALLENGE_BYTES).digest()


def administrator_proof(incarnation: str, *, directory_of: str, to: str, challenge: bytes) -> bytes:
    """Return the 32 bytes by which a client shows a node that it can read a member's data directory.

    The node draws the challenge for each connection, so a recorded proof is worth nothing. The proof names the node
    that it is for, so a process that listens at the address of another member cannot pass it on. A node answers
    challenges of clients too (:func:`identity_proof`); those answers have another length and another ``person``, so no
    client can let a node make this proof.

    Args:
      incarnation: as the control file of the directory holds it.
      directory_of: the name of the member whose directory that is.
      to: the id in the WELCOME of the node that is to be convinced.
      challenge: as in that WELCOME.
    """
    said = "\n".join((directory_of, to)).encode(errors="replace")
    key = incarnation.encode()[:64]
    return blake2b(challenge + said, key=key, digest_size=32, person=b"viewstamp-admin").digest()


def directory_proof(incarnation: str, directory_id: str, path: str, challenge: bytes) -> bytes:
    """Return the proof that a node runs on this directory. A copy of the directory has the same incarnation.

    Args:
      incarnation: as for :func:`identity_proof`.
      directory_id: an id that no copy of the directory has (``Lock.directory_id``).
      path: the directory's path as a node of an older release sends it; "" = it is not sent.
      challenge: as for :func:`identity_proof`.
    """
    said = "\n".join((directory_id, path)).encode(errors="replace")
    return identity_proof(incarnation, challenge + blake2b(said, digest_size=CHALLENGE_BYTES).digest())


def hello_proof(incarnation: str, hello: Mapping[str, object]) -> bytes:
    """Return the proof that the sender of a peer's ``hello`` knows the ``incarnation`` of its target.

    Only members know it, from the membership records in their log. The proof covers the sender's name and its listen
    address, so it cannot be used under another name or for another address. It is another function than
    :func:`identity_proof`, because a node computes that one for every client that sends a challenge.
    """
    said = "\n".join(str(hello.get(name, "")) for name in ("cluster", "node", "incarnation", "address"))
    key = incarnation.encode()[:64]
    return blake2b(said.encode(errors="replace"), key=key, digest_size=32, person=b"viewstamp-hello").digest()


def fingerprint(incarnation: str) -> str:
    """Return 8 hexadecimal digits that distinguish incarnations in texts without revealing them."""
    return blake2b(incarnation.encode(errors="replace"), digest_size=4).hexdigest()
