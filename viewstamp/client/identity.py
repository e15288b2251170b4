"""Checks whether the node that answers at an address is the one of a caller's directory; see ``routing.py``."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from viewstamp.client.routing import ExpectedNode
from viewstamp.errors import UnavailableError, ViewstampError, WrongNodeError
from viewstamp.ids import name_of
from viewstamp.wire.identity_proof import directory_proof, identity_proof

__all__ = ["check_identity"]


def check_identity(
    address: str, expected: ExpectedNode, welcome: Mapping[str, Any], challenge: bytes
) -> ViewstampError | None:
    """Compare the WELCOME of the node that answers at ``address`` with the one that is expected there.

    Returns:
      Why it may be asked for STATUS only; None = it is the one.

    Raises:
      WrongNodeError: it is another node, or runs on another directory.
    """
    found, file = str(welcome.get("node")), expected.file or "the directory"
    proof = welcome.get("proof")
    if name_of(found) != expected.node:
        raise _mismatch(address, f"{found} answers at {address}, where {file} has {expected.node}")
    if "proof" in welcome and proof is None:
        return UnavailableError(f"{found} at {address} is replaying its log", remedy="try again in a moment")
    if expected.incarnation and not _is_proof(proof, expected.incarnation, challenge):
        raise _mismatch(address, f"{found} answers at {address}, but from another data directory than {file} names")
    members = welcome.get("members")
    recorded = members.get(found) if isinstance(members, dict) else None
    if recorded is not None and recorded != address:
        return WrongNodeError(
            f"{found} answers at {address}, but its membership has it at {recorded}; nothing was sent to it",
            remedy=f"if the directory of {file} is a copy, stop its nodes, which act as the original's; if {found} was"
            f" moved, write {recorded} into its settings and restart it",
        )
    if _runs_elsewhere(welcome, expected, challenge):
        raise WrongNodeError(
            f"{found} at {address} does not run on {expected.directory}, but on a copy or on the original of it; "
            "nothing was sent to it",
            remedy=f"name the directory on which it runs by --dir, or name the node by --cluster {address}; to start "
            "the node of this directory, stop that one first",
        )
    return None


def _runs_elsewhere(welcome: Mapping[str, Any], expected: ExpectedNode, challenge: bytes) -> bool:
    """Return whether a node runs on another directory than the expected one; False if the node does not prove it.

    A node on a disk without an id that copies lack proves nothing, nor does one of an old release.
    """
    path, proof = welcome.get("directory", ""), welcome.get("directory_proof")
    if not expected.incarnation or not expected.directory_id or not isinstance(path, str) or proof is None:
        return False
    own = directory_proof(expected.incarnation, expected.directory_id, path, challenge)
    return not (isinstance(proof, bytes) and hmac.compare_digest(proof, own))


def _is_proof(proof: object, incarnation: str, challenge: bytes) -> bool:
    return isinstance(proof, bytes) and hmac.compare_digest(proof, identity_proof(incarnation, challenge))


def _mismatch(address: str, what: str) -> WrongNodeError:
    return WrongNodeError(
        f"{what}; nothing was sent to it",
        remedy=f"stop the process that listens at {address} and start the node of the directory, or correct the address"
        f" in its settings; to act on the node that answers, name it by --cluster {address}",
    )
