"""Decides whether a node may start with the addresses in its settings. The membership record decides.

A node that the record has at another address may be a copy of a member. It has that member's identity, so the others
would count its votes and acknowledgements as the member's: two disks would count as one voter. So it does not start.

| the record of the node's own log (newest, committed or not) | the node |
| --- | --- |
| none: the directory is new, and ``[cluster] members`` has the address, or does not name the node | starts |
| none, and ``[cluster] members`` has another address | refuses: the settings contradict themselves |
| does not name the node: it is new, or was removed | starts; the others decide |
| has the address | starts, if the second table allows it |
| has another address, and a member names a newer record with this one: it was moved while it was down | the same |
| has another address, and no member names such a record | refuses |
| has another address, and the node is the only member | refuses: it may be a copy, and no other member can decide |

A copy may also have kept its own address, and have other addresses for the other members only. It would connect to the
members of the original, because the record has their addresses. But settings that are merely older than the record are
common, because a member moves by a committed change, which needs no edit of the other members' files. So each start
stores the addresses in the settings, in the file ``settings-members`` of the data directory, which a copy has too.
Settings that are as they were at the last start are merely older.

Addresses are compared as texts, so another name of the same host counts as another address. The node does not ask at
the settings' address whether that is the member itself, because a copy of the member would give the same proof.

| ``[cluster] members`` and ``learners``, compared for each member that the record names too | the node |
| --- | --- |
| all have the recorded address, or name no present member: a member was added, replaced or removed since | starts |
| another address, as at the last start: the cluster has moved that member since | starts |
| another address, changed since the last start; a member names a newer record that agrees with the settings | starts |
| another address, changed since the last start, and ``viewstamp node readdress`` has moved this node with these \
settings: the others will follow | starts |
| another address, changed since the last start, otherwise | refuses: this directory may be a copy |
| another address, and the last start is unknown: it was by an earlier release | starts, with a warning in its log |

The others are asked at the addresses of the node's own record, and at those in the settings, by a client's
handshake, which changes nothing. A node that does not answer is asked again for ``_ASK_SECONDS``, because all nodes may
be starting at the same time. So is one that still replays its log: it names the members of its settings, and has no
proof of its identity yet. Of two records the one of the higher generation counts. If that one is never committed,
the node starts at an address that no member uses, which is harmless.

If the process dies before the settings' addresses are stored, the next start compares with those of an earlier start:
it refuses at worst, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from viewstamp.errors import MovedError, PeerError, StorageFullError
from viewstamp.host.address import parse_address
from viewstamp.host.garbage import create_anew
from viewstamp.host.interfaces import Disk, Host, Network
from viewstamp.host.logger import Logger
from viewstamp.ids import name_of
from viewstamp.node.options import NodeOptions
from viewstamp.node.peers.question import answer_to
from viewstamp.node.replay import Recovered
from viewstamp.wire.handshake import Hello, Welcome, read_members
from viewstamp.wire.identity_proof import CHALLENGE_BYTES

__all__ = ["SETTINGS_MEMBERS_NAME", "check_address", "store_settings_members"]

SETTINGS_MEMBERS_NAME: Final = "settings-members"
_ASK_SECONDS: Final = 3.0
_AGAIN_SECONDS: Final = 0.1
_WELCOME_SECONDS: Final = 1.0

_Blocking = Callable[[Callable[[], Any]], Awaitable[Any]]


async def check_address(
    options: NodeOptions, recovered: Recovered, host: Host, run_blocking: _Blocking, log: Logger
) -> None:
    """Return if the node may start with the addresses of its settings, which are then stored; cancellable.

    Args:
      options: of the node.
      recovered: its state, with the membership record.
      host: the machine.
      run_blocking: runs a function off the event loop and returns its result.
      log: for warnings.

    Raises:
      MovedError: the membership has it, or another member, at another address; see the tables above.
      StorageError: the disk failed.
    """
    own = options.advertise or options.listen
    stored = recovered.stored
    membership = stored.readdressing.entry(stored.memberships[-1]).membership
    member = recovered.member_id
    recorded = membership.addresses.get(member)
    is_moved = recorded is not None and recorded != own and parse_address(own)[1] != 0
    if is_moved and recovered.is_new:
        raise MovedError(
            f"[cluster] members has {member} at {recorded}, but [node] advertise or listen says {own}",
            remedy="write the same address in both, as the other members are to reach it",
        )
    named = {str(name): address for name, address in {**options.learners, **options.members}.items()}
    differing = _differing(named, membership.addresses)
    disk, directory = host.disk, options.data_dir
    before = await run_blocking(lambda: _settings_members(disk, directory)) if options.stores_members else None
    changed = {name: at for name, at in differing.items() if before is not None and before.get(name) != named[name]}
    if is_moved or changed:
        known = [address for name, address in membership.addresses.items() if name != member]

        def agrees(members: Mapping[str, str]) -> bool:
            return not changed.keys() & _differing(named, members) and (not is_moved or members.get(member) == own)

        asked = dict.fromkeys([*known, *(named[name] for name in changed if name != name_of(member))])
        hello = Hello(cluster=options.cluster, group=options.group, challenge=bytes(CHALLENGE_BYTES))
        if not await _any_names(host.network, asked, hello, membership.generation, agrees):
            if is_moved:
                raise _own_has_moved(str(member), str(recorded), own)
            raise _others_have_moved(named, changed)
    elif differing and before is None and options.stores_members:
        log.warning("! the settings have members at other addresses than the membership", recorded=differing)
    if options.stores_members and before != named:
        try:
            await run_blocking(lambda: store_settings_members(disk, directory, named))
        except StorageFullError as error:  # A node with a full disk has to start, to make room.
            log.warning("! the members in the settings were not stored", reason=error.message)


def _differing(named: Mapping[str, str], recorded: Mapping[Any, str]) -> dict[str, str]:
    """Return the recorded addresses of the members that the settings have at another one, by name."""
    found: dict[str, list[str]] = {}
    for member, address in recorded.items():
        found.setdefault(name_of(member), []).append(address)
    return {
        name: found[name][-1]
        for name, address in named.items()
        if name in found and address not in found[name] and parse_address(address)[1] != 0
    }


def _own_has_moved(member: str, recorded: str, own: str) -> MovedError:
    return MovedError(
        f"the membership has {member} at {recorded}, but [node] advertise or listen says {own}; nothing was started",
        remedy=f"put {recorded} back into the settings; or, if this node has moved to {own}: viewstamp node readdress"
        " --config FILE, then start it; or, if this directory is a copy: viewstamp cluster fork begins a new cluster"
        " with it",
    )


def _others_have_moved(named: Mapping[str, str], recorded: Mapping[str, str]) -> MovedError:
    wrong = ", ".join(f"{name} at {named[name]} instead of {address}" for name, address in recorded.items())
    right = ", ".join(f"{name} = {address}" for name, address in recorded.items())
    names = " and ".join(recorded)
    return MovedError(
        f"[cluster] was changed since the last start, and contradicts the membership: {wrong}; nothing was started",
        remedy=f"put {right} back into [cluster] members; or, if the new address is right, because of a move or as"
        f" another name of the host: run viewstamp node readdress on the machine of {names} first, then start this"
        " node; or, if this directory is a copy: viewstamp cluster fork begins a new cluster with it",
    )


# -- The addresses of the last start -----------------------------------------------------------------------------------


def store_settings_members(disk: Disk, directory: str, named: Mapping[str, str]) -> None:
    """Store the addresses that settings have, as those of a start; blocking, durable on return.

    Args:
      disk: with the data directory.
      directory: the data directory of the node.
      named: name to address of all members and learners in the settings.

    Raises:
      StorageError: the disk failed; StorageFullError: it is full. The earlier file is unchanged.
    """
    path = f"{directory}/{SETTINGS_MEMBERS_NAME}"
    file = create_anew(disk, f"{path}.temporary")
    try:
        file.write(0, [json.dumps(dict(named), sort_keys=True).encode()])
        file.sync()
    finally:
        file.close()
    disk.rename(f"{path}.temporary", path)
    disk.sync_directory(directory)


def _settings_members(disk: Disk, directory: str) -> dict[str, str] | None:
    """Return the addresses in the settings of the last start; None = unknown, or the file is damaged."""
    try:
        file = disk.open_read(f"{directory}/{SETTINGS_MEMBERS_NAME}")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(file.read(0, file.size()))
    except ValueError:
        return None
    finally:
        file.close()
    is_table = type(found) is dict and all(type(address) is str for address in found.values())
    return found if is_table else None


# -- Asking the others -------------------------------------------------------------------------------------------------


async def _any_names(
    network: Network,
    addresses: Iterable[str],
    hello: Hello,
    generation: int,
    agrees: Callable[[Mapping[str, str]], bool],
) -> bool:
    """Return whether a node at one of ``addresses`` names a record newer than ``generation`` that ``agrees``."""
    questions = [asyncio.ensure_future(_ask(network, address, hello, generation, agrees)) for address in addresses]
    try:
        for question in asyncio.as_completed(questions):
            if await question:
                return True
    finally:
        for each in questions:
            each.cancel()
    return False


async def _ask(
    network: Network, address: str, hello: Hello, generation: int, agrees: Callable[[Mapping[str, str]], bool]
) -> bool:
    """Ask the node at ``address`` until it names the members; return whether its record is newer and ``agrees``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _ASK_SECONDS
    while True:
        try:
            async with asyncio.timeout(_WELCOME_SECONDS):
                welcome = await answer_to(network, address, hello)
            if isinstance(welcome, Welcome):
                members, found, is_replayed = _members_of(welcome)
                if found > generation and agrees(members):
                    return True
                if found >= generation and is_replayed:
                    return False
        except (TimeoutError, PeerError):
            pass  # It is down, starting, or in another cluster: it is asked again, as after any other error.
        if loop.time() > deadline:
            return False
        await asyncio.sleep(_AGAIN_SECONDS)


def _members_of(welcome: Welcome) -> tuple[dict[str, str], int, bool]:
    """Return the members that a node names, their generation, and whether its log has been replayed.

    Raises:
      PeerError: it names none.
    """
    if welcome.members is None:
        raise PeerError(f"{welcome.node} does not name the members")
    return *read_members(welcome.members), welcome.identity.get("proof") is not None
