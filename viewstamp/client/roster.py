"""The nodes that a client may talk to, when its caller can read their directories: the identity check.

A copy of a cluster's directory holds the same cluster id, node ids and incarnations as the original, and its nodes
name the original's addresses as the members'. A client that followed those addresses would act on the original. So a
caller that names a directory sets ``Options.expected``, and the client compares before it sends anything but HELLO:

| who is met | is taken |
| --- | --- |
| at an address of the directory: the node that the directory has there, with its incarnation | yes |
| at an address of the directory: another node, another cluster, or another incarnation | refused |
| at an address of the directory: the right node, whose membership has it at another address | asked for STATUS only |
| at an address of the directory: the right node, which replays its log and proves nothing yet | asked for STATUS only |
| at another address: a member whose name is in the directory | refused, without a connection |
| at another address: a member whose name is not in the directory, if a node of the directory names it, and the \
membership has that node at the very address where it was reached | yes |
| at another address: anything else | refused, without a connection |

The last row but one is a cluster of which some nodes are in the directory. A node of a copy cannot vouch for members
of the original, because the original's membership has another address for that node.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from viewstamp.errors import UnavailableError, ViewstampError, WrongNodeError
from viewstamp.ids import name_of
from viewstamp.wire.identity_proof import identity_proof

__all__ = ["Identity", "Roster", "check_identity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The node that has to answer at an address.

    Attributes:
      node: its name.
      incarnation: of its data directory; "" = the directory has none yet, and only the name is compared.
      file: the settings file that has the address, for messages; "" = none.
    """

    node: str
    incarnation: str = ""
    file: str = ""


class Roster:
    """Decides which addresses a client may connect to; see the table above. With ``expected`` None, to all."""

    def __init__(self, expected: Mapping[str, Identity] | None) -> None:
        """Begin.

        Args:
          expected: address to the node that has to answer there; may grow while the client is open. None = no check.
        """
        self._expected = expected
        self._vouched: dict[str, str] = {}
        """Addresses of members outside the directory, and their names."""
        self._named: dict[str, str] = {}
        """Addresses that a node named for a member and that are refused, and the member's name: for messages."""

    def at(self, address: str) -> Identity | None:
        """Return who has to answer at an address; None = anybody may.

        Raises:
          WrongNodeError: no connection may be opened there.
        """
        if self._expected is None:
            return None
        identity = self._expected.get(address)
        if identity is None and address in self._vouched:
            identity = Identity(node=self._vouched[address])
        if identity is None:
            raise self._stranger(self._expected, address)
        return identity

    def name(self, address: str) -> str:
        """Return the name of the node that has to answer at an address; "" = anybody may."""
        identity = (self._expected or {}).get(address)
        return identity.node if identity is not None else ""

    def admits(self, address: str) -> bool:
        """Say whether an address that somebody names may be tried."""
        return self._expected is None or address in self._expected or address in self._vouched

    def check_member(self, member: str) -> None:
        """Check that a member, which was not reached, is not at an address that is refused.

        Raises:
          WrongNodeError: it is.
        """
        for address, name in self._named.items():
            if name == name_of(member) and not self.admits(address):
                self.at(address)

    def vouch(self, by: str, at: str, members: Mapping[str, str]) -> None:
        """Take the members that the node ``by``, which was met at the address ``at``, names."""
        if self._expected is None:
            return
        names = {identity.node for identity in self._expected.values()}
        for member, address in members.items():
            name = name_of(member)
            if members.get(by) == at and name not in names:
                self._vouched[address] = name
            elif not self.admits(address):
                self._named[address] = name

    def _stranger(self, expected: Mapping[str, Identity], address: str) -> WrongNodeError:
        """Return the error for an address that is not of the directory."""
        name = self._named.get(address, "")
        held = next(((at, each) for at, each in expected.items() if each.node == name), None)
        if held is not None:
            what = f"the membership has {name} at {address}, but {held[1].file or 'the directory'} has it at {held[0]}"
        else:
            known = ", ".join(f"{each.node} at {at}" for at, each in expected.items())
            what = f"the membership has {name or 'a member'} at {address}, but the directory has {known}"
        return WrongNodeError(
            f"{what}; nothing was sent to {address}",
            remedy=f"if the directory is a copy, the original is at {address}: to act on that, name it by --cluster "
            f"{address}; if {name or 'the node'} was moved, correct the address in its settings",
        )


def check_identity(
    address: str, expected: Identity, welcome: Mapping[str, Any], challenge: bytes
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
            remedy=f"if the directory of {file} is a copy, stop its nodes: they pass for the original's; if {found} was"
            f" moved, write {recorded} into its settings and restart it",
        )
    return None


def _is_proof(proof: object, incarnation: str, challenge: bytes) -> bool:
    return isinstance(proof, bytes) and hmac.compare_digest(proof, identity_proof(incarnation, challenge))


def _mismatch(address: str, what: str) -> WrongNodeError:
    return WrongNodeError(
        f"{what}; nothing was sent to it",
        remedy=f"stop the process that listens at {address} and start the node of the directory, or correct the address"
        f" in its settings; to act on the node that answers, name it by --cluster {address}",
    )
