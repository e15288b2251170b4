"""Creates the settings files of a local cluster and of nodes that join it: ids, free ports, one file for each node.

``machines.py`` does so for nodes on several machines.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import socket
import tomllib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from viewstamp.config.load import LoadedSettings, settle
from viewstamp.config.model import NodeSettings, keys_of
from viewstamp.errors import ConfigError, StorageError
from viewstamp.host.private import make_private_directory, open_private
from viewstamp.ids import ClusterId, NodeId, name_of

__all__ = [
    "NODES_MAX",
    "common_sections",
    "create_cluster",
    "create_node",
    "free_addresses",
    "member_table",
    "new_cluster_id",
    "node_file",
    "write_file",
    "write_new_files",
]

NODES_MAX: Final = 9
"""More voters than this would slow down every append without a benefit."""

_PORT_MIN: Final = 10_000
_PORT_END_DEFAULT: Final = 32_768
_TRIES: Final = 1000
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_MEMBERS: Final[Mapping[NodeId, str]] = MappingProxyType({})


def node_file(directory: str, node: str) -> str:
    """Return the path of the settings file of a local cluster's node."""
    return os.path.join(directory, f"{node}.toml")


def create_cluster(
    directory: str, nodes: int, settings: Mapping[str, str] = _NO_SETTINGS, *, chaos: bool = False
) -> list[NodeId]:
    """Write ``directory``/n1.toml and so on for a new cluster; return the node ids. Durable on return.

    ``settings`` maps ``section.key`` to text and goes into every file. n1.toml is written last, so that a directory
    that has it holds the files of all members, even if creating them was interrupted. With ``chaos`` the nodes obey
    ``viewstamp chaos``.

    Raises:
      ConfigError: the number or a setting is not allowed, or files exist already; nothing has been changed.
      StorageError: the directory cannot be written.
    """
    if not 1 <= nodes <= NODES_MAX:
        raise ConfigError(f"nodes = {nodes} is not allowed; allowed: 1 to {NODES_MAX}", remedy="3 or 5 is usual")
    ids = [NodeId(f"n{number}") for number in range(1, nodes + 1)]
    addresses = dict(zip(ids, free_addresses(nodes), strict=True))
    cluster_id = new_cluster_id()
    texts = {node: _text(node, addresses[node], cluster_id, addresses, chaos=chaos) for node in ids}
    more = _more_text(texts[ids[0]], node_file(directory, ids[0]), settings)
    write_new_files(directory, {node: texts[node] + more for node in ids}, taken=re.compile(r"n[0-9]+"))
    return ids


def write_new_files(directory: str, texts: Mapping[NodeId, str], *, taken: re.Pattern[str] | None = None) -> None:
    """Write ``directory``/NODE.toml for each text; the first one last. Durable on return.

    Args:
      directory: created if it is missing.
      texts: the content of each node's file.
      taken: no file or directory may have a name that matches this, or such a name with ``.toml``. None = the names of
        the written nodes.

    Raises:
      ConfigError: such a file exists; nothing was changed.
      StorageError: the directory cannot be written.
    """
    try:
        make_private_directory(directory)
        names = sorted(os.listdir(directory))
        stems = {name: name.removesuffix(".toml") for name in names}
        held = [name for name in names if (taken.fullmatch(stems[name]) if taken is not None else stems[name] in texts)]
        if held:
            raise ConfigError(
                f"{directory} already holds {', '.join(held)}; nothing was changed",
                remedy="choose another directory, or remove these files if no cluster needs them",
            )
        for node in reversed(list(texts)):
            write_file(node_file(directory, node), texts[node])
    except OSError as error:
        raise StorageError(
            f"cannot write to {directory}: {error.strerror}; the cluster was not created",
            remedy="choose a directory that this user may write, on a disk with free space",
        ) from error


def create_node(directory: str, node: str, like: NodeSettings, like_file: str, members: Mapping[NodeId, str]) -> str:
    """Write ``directory``/NODE.toml for a node that is going to join a cluster; return its path. Durable on return.

    The node starts as a learner, listens on a free loopback port, and has the settings of another member, whose file is
    ``like_file``, except those that identify that member. ``members`` are the cluster's present voters.

    Raises:
      ConfigError: the name is not allowed, or its file or data directory exists already.
      StorageError: the directory cannot be written.
    """
    file = node_file(directory, node)
    for path in (file, os.path.join(directory, node)):
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} exists already; nothing was changed",
                remedy="choose another name, because a new node must not act for an earlier one",
            )
    address = free_addresses(1)[0]
    # Settings name nodes, so an id of a member that has lost its disk (n2~8c21f0aa) is shortened to the node's name.
    hint = {name_of(member): at for member, at in members.items()}
    text = _text(node, address, like.cluster.id, hint, {NodeId(node): address}, chaos=like.node.chaos)
    try:
        with open(like_file, encoding="utf-8") as stream:
            text += common_sections(stream.read())
        settle(tomllib.loads(text), file, environment={}, overrides={})
        write_file(file, text)
    except OSError as error:
        raise StorageError(
            f"cannot write {file}: {error.strerror}", remedy="let this user write there, and free space on the disk"
        ) from error
    return file


def common_sections(text: str) -> str:
    """Return the sections of a settings file that are the same on every node, as text."""
    sections = re.split(r"^(?=[ \t]*\[)", text, flags=re.MULTILINE)
    kept = [section for section in sections[1:] if not re.match(r"\s*\[\s*(node|cluster|tls)\b", section)]
    return "".join(["\n", *kept]) if kept else ""


def new_cluster_id() -> ClusterId:
    """Return the random id of a new cluster."""
    return ClusterId(secrets.token_hex(16))


def free_addresses(count: int) -> list[str]:
    """Return ``count`` loopback addresses that are free now.

    The ports lie below those that the operating system uses for outgoing connections, because such a connection could
    otherwise take the port of a node while the node is down.
    """
    random_port = random.SystemRandom().randrange
    addresses: list[str] = []
    with contextlib.ExitStack() as held:
        for _ in range(_TRIES):
            if len(addresses) == count:
                return addresses
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            port = random_port(_PORT_MIN, _ephemeral_port_min())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                addresses.append(f"127.0.0.1:{port}")
    raise ConfigError(
        f"no {count} free ports were found on 127.0.0.1 in {_TRIES} tries", remedy="write the settings files by hand"
    )


def _ephemeral_port_min() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as stream:
            first = int(stream.read().split()[0])
    except (OSError, ValueError, IndexError):
        return _PORT_END_DEFAULT
    return first if first > _PORT_MIN + 1000 else _PORT_END_DEFAULT


def _text(
    node: str,
    address: str,
    cluster_id: ClusterId,
    members: Mapping[NodeId, str],
    learners: Mapping[NodeId, str] = _NO_MEMBERS,
    *,
    chaos: bool,
) -> str:
    hint = next(iter(members)) if node in members else ""
    learning = member_table(learners).ljust(33 - len("learners = "))
    return (
        "[node]\n"
        f'id = "{node}"\n'
        f'data_dir = "{node}"                   # relative to this file\n'
        f'listen = "{address}"     # peers and clients, one port\n'
        + ("chaos = true                      # obeys `viewstamp chaos`: for trying things out\n" if chaos else "")
        + "\n"
        "[cluster]\n"
        f'id = "{cluster_id}"\n'
        f"members = {member_table(members)}\n"
        f"learners = {learning} # members and learners count only where the log holds no membership yet\n"
        f'leader_hint = "{hint}"\n'
    )


def member_table(addresses: Mapping[NodeId, str]) -> str:
    """Return an inline table of TOML."""
    pairs = [
        f"{node if re.fullmatch('[A-Za-z0-9_-]+', node) else json.dumps(node)} = {json.dumps(address)}"
        for node, address in addresses.items()
    ]
    return f"{{ {', '.join(pairs)} }}" if pairs else "{}"


def _more_text(text: str, file: str, settings: Mapping[str, str]) -> str:
    """Return the sections for ``settings``, after checking them together with the ``text`` of one file."""
    for dotted in settings:
        if dotted.startswith(("node.", "cluster.")):
            raise ConfigError(
                f"--set {dotted}: the sections [node] and [cluster] of a new cluster cannot be chosen",
                remedy="create the files with `viewstamp config new`, and change them before the first start",
            )
    loaded = settle(tomllib.loads(text), file, environment={}, overrides=settings)
    return "".join(_section_text(loaded, settings))


def _section_text(loaded: LoadedSettings, settings: Mapping[str, str]) -> Iterator[str]:
    section = ""
    units = {f"{key.section}.{key.name}": key for key in keys_of(NodeSettings) if key.unit}
    for dotted, value, _ in loaded.rows():
        if dotted in settings:
            value = units[dotted].show(value) if dotted in units else value
            if (of := dotted.partition(".")[0]) != section:
                section = of
                yield f"\n[{section}]\n"
            name = dotted.partition(".")[2]
            # A JSON string, number or boolean is also a TOML one.
            yield f"{json.dumps(name) if '.' in name else name} = {json.dumps(value, ensure_ascii=False)}\n"


def write_file(path: str, text: str) -> None:
    """Replace a settings file as a whole; durable on return."""
    with open(path + ".new", "w", encoding="utf-8", opener=open_private) as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(path + ".new", path)
    _sync_directory(os.path.dirname(path) or ".")


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
