"""Creates the settings files of nodes on several machines, with a comment on each setting that an operator decides."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from viewstamp.config.create import NODES_MAX, common_sections, member_table, new_cluster_id, node_file, write_new_files
from viewstamp.config.load import LoadedSettings, settle
from viewstamp.config.model import Key, NodeSettings, actor_key, is_loopback, keys_of
from viewstamp.errors import ConfigError
from viewstamp.host.address import format_address, parse_address
from viewstamp.ids import NodeId

__all__ = ["create_machine_files", "create_machine_like"]

_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_OWN_SECTIONS: Final = ("node", "cluster", "tls")
"""Sections whose values follow from the members. The others are equal on all nodes."""
_CHOOSABLE: Final = ("node.health",)
"""Keys of these sections that may be chosen all the same."""

_HEAD: Final = """\
# Settings of node {node}. Copy this file to the machine that the other nodes reach as {host}.
# A line such as "# bytes_max = 0" shows the default: remove the "#" to change it.
# Sizes and durations take units, for example "64MiB", "7d" or "250ms". All settings: docs/operating.md
"""

_COMMENTS: Final = {
    "node.id": "the name of this node in the cluster; it never changes",
    "node.data_dir": "log and snapshots: a local disk that keeps what it syncs, no NFS; only for the node's user",
    "node.listen": "peers and clients connect to this port; 0.0.0.0 = every IPv4 address of this machine",
    "node.advertise": "the others connect to this address; the same text as in members",
    "node.insecure_network": "no encryption, no authentication: only where all processes in reach are trusted",
    "node.health": "/livez and /readyz for whatever restarts this node; see docs/three-machines.md",
    "cluster.id": "the same on every node",
    "cluster.members": "the voters of a new cluster; later the log decides, see `viewstamp members list`",
    "cluster.learners": "this node, until the others have made it a voter",
    "cluster.leader_hint": "leads first in a new cluster",
    "wal.bytes_max": "the most that the log takes on disk; 0 = until the disk is full",
    "wal.reserve_bytes": "appends are refused before less than this is free on the disk",
    "limits.record_bytes_max": "the largest record; equal on all nodes",
    "limits.session_seconds": "a client that is silent for this long loses its session, and cannot retry old appends",
    "timeouts.election_ms": "how long a follower waits for its leader; equal on all nodes; raise it on a slow network",
    "timeouts.clock_bound_s": "how far the time of a record may be from the clocks; keep NTP running",
    "snapshots.restart_seconds_max": "snapshots are taken so that a restart is shorter than this",
    "tls.authority": "who signs the certificates of members and clients; keep ca.key off the nodes",
    "tls.certificate": "names the cluster and this node; see docs/security.md",
    "tls.key": "only the node's user may read it",
    "logging.level": "info, warning or error",
}
"""Why or how an operator sets each key. Only these keys are written, and those that were chosen."""

_EXAMPLES: Final = {"node.health": "127.0.0.1:7101"}
"""Shown instead of a default that is empty."""


def create_machine_files(
    directory: str,
    members: Mapping[str, str],
    *,
    only: str = "",
    cluster_id: str = "",
    data_dir: str = "",
    tls: bool = False,
    insecure_network: bool = False,
    settings: Mapping[str, str] = _NO_SETTINGS,
) -> dict[NodeId, str]:
    """Write ``directory``/NAME.toml for each member of a new cluster. Durable on return.

    Args:
      directory: for the files; it is created if it is missing.
      members: name to ``host:port``, as the nodes reach each other: the voters of the new cluster.
      only: write the file of this member alone; "" = of all.
      cluster_id: "" = a new random one.
      data_dir: a directory on each machine; the node NAME has ``data_dir``/NAME. "" = NAME beside the settings file.
      tls: write a section [tls] with the files that ``make_certificates(directory)`` makes.
      insecure_network: without ``tls``, accept addresses that other machines can reach.
      settings: ``section.key`` to text, for every file.

    Returns:
      The path of each written file.

    Raises:
      ConfigError: a name, an address or a setting is not allowed, or a file exists already; nothing was changed.
      StorageError: the directory cannot be written.
    """
    if not 1 <= len(members) <= NODES_MAX:
        raise ConfigError(
            f"{len(members)} members are not allowed; allowed: 1 to {NODES_MAX}", remedy="3 or 5 is usual"
        )
    ids = [NodeId(name) for name in members]
    if only and only not in members:
        raise ConfigError(f"--node {only} is no member; the members are {', '.join(ids)}", remedy="name one of them")
    values = {
        "cluster.id": cluster_id or new_cluster_id(),
        "cluster.members": {NodeId(name): address for name, address in members.items()},
        "cluster.leader_hint": ids[0],
    }
    texts = {
        node: _file(
            node,
            members[node],
            {
                **values,
                **_place(node, members[node], data_dir, tls=tls, insecure_network=insecure_network),
                **(_tls(node, "tls/ca.pem", "tls") if tls else {}),
            },
            settings,
            node_file(directory, node),
        )
        for node in ids
        if only in ("", node)
    }
    write_new_files(directory, texts)
    return {node: node_file(directory, node) for node in texts}


def create_machine_like(directory: str, node: str, address: str, like: LoadedSettings, like_file: str) -> str:
    """Write ``directory``/NODE.toml for a node that is going to join the cluster of another member's settings.

    It starts as a learner, and has the other member's settings except those that identify that member. Its data
    directory has the same parent. Durable on return.

    Args:
      directory: for the file; it is created if it is missing.
      node: the name of the new node. It must never have been used in this cluster.
      address: ``host:port``, as the others reach the new node.
      like: the settings of a member.
      like_file: the file that they came from.

    Raises:
      ConfigError: the name or the address is not allowed, or the file exists already; nothing was changed.
      StorageError: the directory cannot be written.
    """
    other = like.settings
    parent, last = os.path.split(other.node.data_dir)
    values = {
        "cluster.id": other.cluster.id,
        "cluster.members": dict(other.cluster.members),
        "cluster.learners": {NodeId(node): address},
        **_place(
            node,
            address,
            parent if last == other.node.id and parent != like.directory else "",
            tls=bool(other.tls.authority),
            insecure_network=other.node.insecure_network,
        ),
    }
    if other.tls.authority:
        authority, beside = (
            os.path.relpath(path, like.directory) for path in (other.tls.authority, other.tls.certificate)
        )
        values |= _tls(node, authority, os.path.dirname(beside))
    health = {"node.health": other.node.health} if other.node.health else {}
    with open(like_file, encoding="utf-8") as stream:
        common = common_sections(stream.read())
    file = node_file(directory, node)
    text = _file(node, address, values, health, file, sections=_OWN_SECTIONS) + common
    _check(text, file)
    write_new_files(directory, {NodeId(node): text})
    return file


def _tls(node: str, authority: str, place: str) -> dict[str, object]:
    return {
        "tls.authority": authority,
        "tls.certificate": os.path.join(place, f"{node}.pem"),
        "tls.key": os.path.join(place, f"{node}.key"),
    }


def _place(node: str, address: str, data_dir: str, *, tls: bool, insecure_network: bool) -> dict[str, object]:
    """Return the settings of [node] that follow from its name and address."""
    host, port = parse_address(address)
    # A machine's own name often resolves to a loopback address there (127.0.1.1 on Debian), so a node that listened
    # at its name would not be reached by the others.
    listen = address if re.fullmatch(r"[0-9.]+|.*:.*|localhost", host) else format_address("0.0.0.0", port)
    place: dict[str, object] = {
        "node.id": node,
        "node.data_dir": os.path.join(data_dir, node),
        "node.listen": listen,
    }
    if listen != address:
        place["node.advertise"] = address
    if not tls and not is_loopback(listen):
        if not insecure_network:
            raise ConfigError(
                f"{node} at {address} can be reached from other machines, but without TLS connections are neither "
                "encrypted nor authenticated",
                remedy="add --tls; last resort: --insecure-network, if every process that reaches this port is trusted",
            )
        place["node.insecure_network"] = True
    return place


def _file(
    node: str,
    address: str,
    values: Mapping[str, object],
    settings: Mapping[str, str],
    file: str,
    *,
    sections: tuple[str, ...] = (),
) -> str:
    """Return the text of a settings file.

    ``values`` are those of [node] and [cluster]; ``settings`` are chosen; other keys with a comment are shown with
    their defaults. ``sections`` () = all.
    """
    for dotted in settings:
        if dotted.partition(".")[0] in _OWN_SECTIONS and dotted not in _CHOOSABLE:
            raise ConfigError(
                f"--set {dotted}: this setting follows from --member, or differs between the nodes",
                remedy="change it in the written files, before the first start",
            )
    keys = {f"{key.section}.{key.name}": key for key in keys_of(NodeSettings)}
    bare = _sections(keys, values, {}, sections=_OWN_SECTIONS)
    loaded = settle(tomllib.loads(bare), file, environment={}, overrides=settings)
    chosen = {dotted: value for dotted, value, _ in loaded.rows() if dotted in settings}
    keys |= {dotted: actor_key(dotted.partition(".")[2]) for dotted in chosen if dotted.startswith("actors.")}
    text = _HEAD.format(node=node, host=parse_address(address)[0]) + _sections(keys, values, chosen, sections=sections)
    _check(text, file)
    return text


def _check(text: str, file: str) -> None:
    settle(tomllib.loads(text), file, environment={}, overrides={})


def _sections(
    keys: Mapping[str, Key], values: Mapping[str, object], chosen: Mapping[str, object], *, sections: tuple[str, ...]
) -> str:
    """Return sections with their keys, as TOML."""
    lines: list[str] = []
    for section in sections or dict.fromkeys(key.section for key in keys.values()):
        written = list(_lines(section, keys, {**values, **chosen}))
        lines += ["", f"[{section}]", *written] if written else []
    return "\n".join(lines) + "\n"


def _lines(section: str, keys: Mapping[str, Key], values: Mapping[str, object]) -> Iterator[str]:
    for dotted, key in keys.items():
        if key.section != section:
            continue
        comment = _COMMENTS.get(dotted, "")
        is_default = dotted not in values
        if is_default and (not comment or (section in _OWN_SECTIONS and dotted not in _CHOOSABLE)):
            continue
        value = _EXAMPLES.get(dotted, key.default) if is_default else values[dotted]
        line = f"{'# ' if is_default else ''}{_quoted_key(key.name)} = {_toml(key, value)}"
        yield f"{line:<40} # {comment}" if comment else line


def _quoted_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _toml(key: Key, value: object) -> str:
    if isinstance(value, dict):
        return member_table(value)
    # A JSON string, number or boolean is also a TOML one.
    return json.dumps(key.show(value) if key.unit and value else value, ensure_ascii=False)
