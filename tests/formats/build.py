"""``python -m tests.formats.build NAME``: write fixtures with the present code: a cluster's directories and a token.

Run it once *before* each change of a format, and keep the files: the tests here open every one. Like a real
cluster, it has several terms, a trimmed topic, keys and headers, a sink with a committed batch and a staged one, an
actor, snapshots, a segment boundary, tokens in a snapshot and behind it, and a member that was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.integration.actor_group import ActorGroup
from tests.integration.ledger import Ledger
from viewstamp.client import Client, SinkCommit
from viewstamp.errors import OutcomeToken
from viewstamp.ids import Sequence, SessionId, TopicId

FIXTURES = Path(__file__).parent
TOKEN = OutcomeToken(session=SessionId(7), sequence=Sequence(3), topic=TopicId(2), offset=4, count=5)
"""The token of each ``NAME.token``, which is its pickle: programs keep pickled tokens over an upgrade."""


async def contents(client: Client) -> dict[str, Any]:
    """Return the visible contents of a cluster: topics, the actor's state, the sink's last batch, the tokens."""
    topics = {}
    for topic in await client.list_topics():
        topics[topic.name] = [
            [
                record.position,
                record.value.decode(),
                record.key.decode() if record.key is not None else None,
                {name: value.decode() for name, value in (record.headers or {}).items()},
            ]
            async for record in client.read(topic.name)
        ]
    total, last, wrong = await client.actor("ledger", Ledger).state()
    sinks = {sink.name: sink.batch for sink in await client.list_sinks()}
    found = {"topics": topics, "ledger": [total, last, wrong], "sinks": sinks}
    tokens = await client.list_tokens()
    if tokens:  # Not in the fixtures of releases without tokens.
        found["tokens"] = [[token.id, token.name, list(map(str, token.roles)), bool(token.ended)] for token in tokens]
    return found


async def fill(group: ActorGroup) -> dict[str, Any]:
    """Write the contents of the fixture, over three terms and a restart; return its visible contents."""
    await group.run()
    client = group.client()
    for name in ("orders", "trimmed"):
        await client.create_topic(name)
    for number in range(40):
        value = b"order %d %s" % (number, bytes([65 + number % 26]) * 300)
        await client.append("orders", value, key=b"k%d" % (number % 7), headers={"n": b"%d" % number})
    await asyncio.gather(*(client.append("trimmed", b"line %d" % number) for number in range(30)))
    ledger = client.actor("ledger", Ledger)
    for number in range(1, 21):
        await ledger.enter("one", number)
    sink = client.sink("etl")
    attempt = await sink.begin(0)
    assert not isinstance(attempt, SinkCommit)
    await attempt.stage_records("orders", [b"staged %d" % number for number in range(9)])
    await sink.commit(0, [await attempt.seal()])
    reader, _ = await client.create_token("reader", ["read:orders"])
    await client.create_snapshot()
    await client.trim_topic("trimmed", 11)
    leader = await group.leader()
    await group.stop(leader.options.node)
    await group.leader()
    # Enough for a second segment, so that the first one is sealed.
    for number in range(150):
        await client.append("orders", b"later %d %s" % (number, bytes([97 + number % 26]) * 400))
    await group.run(leader.options.node)
    await group.caught_up()
    left = await sink.begin(1)
    assert not isinstance(left, SinkCommit)
    await left.stage_records("trimmed", [b"never committed"])
    for number in range(21, 31):
        await ledger.enter("one", number)
    await client.append("trimmed", b"the last one")
    await client.rotate_token(reader.id, keep_seconds=60)
    ended, _ = await client.create_token("ended", ["append:orders*", "call"])
    await client.revoke_token(ended.id)
    _, text = await client.create_token("ops", ["administer"])
    await group.caught_up()
    return {"token": text, **await contents(group.client(token=text))}


async def build(path: Path) -> None:
    """Write the fixture ``path``: n1 and n2 after a clean stop, n3 as after a kill."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "running"
        kept = Path(temporary) / "kept"
        directory.mkdir()
        async with ActorGroup(directory, 3) as group:
            expected = await fill(group)
            # The files of a running node without work in flight are those that SIGKILL leaves.
            shutil.copytree(directory / "n3", kept / "n3")
        for name in ("n1", "n2"):
            shutil.copytree(directory / name, kept / name)
        for each in kept.rglob("*"):
            if each.suffix == ".prepared" or each.name == "lock":
                each.unlink()
        (kept / "expected.json").write_text(json.dumps(expected, indent=1), encoding="utf-8")
        with tarfile.open(path, "w:xz") as archive:
            for each in sorted(kept.rglob("*")):
                archive.add(each, each.relative_to(kept), recursive=False, filter=anonymous)


def build_token(path: Path) -> None:
    """Write the fixture ``path``: a pickled token."""
    path.write_bytes(pickle.dumps(TOKEN, protocol=4))


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an entry of an archive without its owner."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Build the fixtures of one name."""
    parser = argparse.ArgumentParser(prog="python -m tests.formats.build", description=__doc__)
    parser.add_argument("name", help="of the fixture: a version or a date")
    name = parser.parse_args().name
    build_token(FIXTURES / f"{name}.token")
    asyncio.run(build(FIXTURES / f"{name}.tar.xz"))


if __name__ == "__main__":
    main()
