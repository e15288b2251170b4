"""Gives a stopped member of a cluster another address, because its machine or its port has changed.

| the others | the address is changed |
| --- | --- |
| a majority of the voters answers at the recorded addresses | by a committed change, so all members get it |
| there are no others | on this disk: this member decides alone |
| no majority answers, and the operator says that all members have moved | on this disk, for all members that the \
settings name; the next leader writes the addresses into the log |

The addresses in the settings of this member count as those of its last start from then on (``node/address_check.py``),
because the operator says by this command that the directory is the member itself, and not a copy. So settings may
have the new addresses of members that move later.

Nothing is changed if a process answers with the identity of a member at an address that is to be replaced: then the
cluster works there, and these files may be a copy of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from viewstamp.config import NodeSettings, load_settings
from viewstamp.errors import ConfigError, MovedError, NoQuorumError
from viewstamp.ids import NodeId, name_of
from viewstamp.local.forking import members_target, members_that_answer
from viewstamp.terminal.loop import run_async

if TYPE_CHECKING:
    from viewstamp.consensus.membership import Membership

__all__ = ["Readdressed", "readdress"]


@dataclass(frozen=True, slots=True)
class Readdressed:
    """The result: the old and the new address of each member that has moved, and whether a majority committed it."""

    member: str
    moved: Mapping[str, tuple[str, str]]
    is_committed: bool


def readdress(config: str | os.PathLike[str], *, without_majority: bool, seconds: float) -> Readdressed:
    """Give the member whose settings are in ``config`` the address that they contain; blocking.

    Args:
      config: the settings file of a stopped node.
      without_majority: all members have moved: take the addresses of all members from the settings.
      seconds: how long each member may take to answer.

    Raises:
      ConfigError: the directory has no member, or the settings are of another one.
      DirectoryInUseError: the node runs.
      MovedError: a member answers at an address that is to be replaced.
      NoQuorumError: no majority answers, and ``without_majority`` is not set.
      CorruptionError, StorageError: the files cannot be read or written.
    """
    from viewstamp.consensus import standing
    from viewstamp.consensus.membership import MembershipEntry
    from viewstamp.host.disk import RealDisk
    from viewstamp.ids import Index, Term
    from viewstamp.node.address_check import store_settings_members
    from viewstamp.node.data_dir import check_owner
    from viewstamp.node.fork_mark import check_not_forking
    from viewstamp.node.log_store import readdressing_of
    from viewstamp.replay.replica import read_replica
    from viewstamp.wal.control_file import ControlFile

    settings = load_settings(config, environment={}).settings
    disk, directory, own = RealDisk(), settings.node.data_dir, settings.node.advertise
    if not os.path.isdir(directory):
        raise ConfigError(f"{directory} does not exist", remedy="a new node needs no change: start it")
    lock = disk.lock(directory)
    try:
        check_not_forking(disk, directory)
        control = ControlFile.open(disk, directory)
        state = control.state
        found = read_replica(disk, directory).memberships
        if state is None or not found:
            raise ConfigError(f"{directory} has no membership record", remedy="a new node needs no change: start it")
        check_owner(directory, state, node=settings.node.id, cluster=settings.cluster.id)
        newest = max(found, key=lambda entry: (entry.term, entry.index)).membership
        membership = readdressing_of(state).entry(MembershipEntry(Index(0), Term(0), newest)).membership
        member = NodeId(state.member_id or state.node_id)
        in_settings = {str(name): at for name, at in {**settings.cluster.learners, **settings.cluster.members}.items()}
        named = {**settings.cluster.members, settings.node.id: own} if without_majority else {settings.node.id: own}
        wanted = {each: named.get(name_of(each), address) for each, address in membership.addresses.items()}
        moved = {
            str(each): (address, wanted[each])
            for each, address in membership.addresses.items()
            if wanted[each] != address
        }
        if not moved:
            return Readdressed(str(member), {}, is_committed=True)
        answering = members_that_answer(membership, settings.cluster.id, settings.tls.files, seconds=seconds)
        _check_gone(answering, moved)
        if not without_majority and standing.is_majority(membership, [NodeId(each) for each in answering]):
            _commit(membership, member, settings, seconds=seconds)
            store_settings_members(disk, directory, in_settings)
            return Readdressed(str(member), moved, is_committed=True)
        if not without_majority and membership.addresses.keys() != {member}:
            raise _no_majority(membership, member, answering)
        store_settings_members(disk, directory, in_settings)
        control.write(replace(state, moved=tuple(sorted(wanted.items())), moved_generation=membership.generation))
        return Readdressed(str(member), moved, is_committed=False)
    finally:
        lock.release()


def _check_gone(answering: Mapping[str, str], moved: Mapping[str, tuple[str, str]]) -> None:
    there = [f"{each} at {answering[each]}" for each, (old, _) in moved.items() if answering.get(each) == old]
    if there:
        raise MovedError(
            f"a process answers as {', '.join(there)}, so it has not moved; nothing was changed",
            remedy="stop that process if it is this member's; if these files are a copy, they can only begin a new"
            " cluster: viewstamp cluster fork",
        )


def _commit(membership: Membership, member: NodeId, settings: NodeSettings, *, seconds: float) -> None:
    is_voter = member in membership.electors or member in membership.joining

    async def change() -> None:
        async with members_target(membership, settings.cluster.id, settings.tls.files).connect() as client:
            await client.add_member(member, settings.node.advertise, voter=is_voter, timeout=max(seconds, 10.0))

    run_async(change())


def _no_majority(membership: Membership, member: NodeId, answering: Mapping[str, str]) -> NoQuorumError:
    others = {each: at for each, at in membership.addresses.items() if each != member}
    silent = ", ".join(f"{each} at {at}" for each, at in others.items() if each not in answering)
    return NoQuorumError(
        f"no majority of the members can commit the new address of {member}: {silent} do not answer; nothing was"
        " changed",
        remedy="start them, then repeat this. If they have moved too: stop all members, write all new addresses into"
        " [cluster] members of each settings file, and run viewstamp node readdress --without-majority --config FILE on"
        " each",
    )
