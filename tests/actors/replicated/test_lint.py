"""The lint finds code that makes members differ, under any imported name, and accepts correct code."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time as clock
import uuid
from datetime import UTC, date, datetime, timedelta
from random import choice
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from viewstamp.actors.replicated import ReplicatedActor, command, lint, query

COUNT = 0


class Careless(ReplicatedActor):
    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.seen = {1}
        self.count = 0
        self.stock: dict[str, int] = {}
        self.started = clock.time()

    @command
    def times(self) -> Any:
        return monotonic(), datetime.now(UTC), date.today()

    @command
    def dice(self) -> Any:
        random.shuffle([1])
        return choice([1]), uuid4(), uuid.uuid1(), os.urandom(3)

    @command
    def orders(self) -> Any:
        for tag in self.tags:
            self.count += len(tag)
        pairs = [n + 1 for n in {1, 2} | self.seen]
        self.tags.pop()
        return list(self.tags), ",".join(set("ab")), pairs

    @command
    def outside(self) -> None:
        global COUNT
        COUNT += 1
        threading.Thread(target=print).start()
        asyncio.get_event_loop()
        with open("x") as file:
            self.count = hash(file.read())

    @command
    def refuse(self) -> None:
        if self.count:
            raise PermissionError("not yours")
        raise TimeoutError

    @query
    def look(self) -> int:
        self.count += 1
        self.stock["A"] = 1
        del self.stock["B"]
        return self.helper()

    def helper(self) -> int:
        return id(self)


class Careful(ReplicatedActor):
    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.last = self.now
        self.ids: dict[UUID, datetime] = {}

    @command
    def tag(self, name: str) -> list[str]:
        self.tags |= {name}
        self.ids[self.new_id()] = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=1)
        self.last = self.now
        if name in self.tags and len(self.tags) > 3:
            raise ValueError(name)
        dice = random.Random(3)
        return [each for each in sorted(self.tags) if dice.random() < self.random.random()]

    @query
    def has(self, name: str) -> bool:
        found = {}
        found[name] = sum(1 for _ in range(3))
        return name in self.tags or os.path.sep in name


def test_the_careless_class_gets_each_finding_with_its_line() -> None:
    found = lint(Careless)
    told = [line.split(": ", 1)[1] for line in found]
    order = "the order of a set differs from member to member: use sorted(...)"
    iterate = "the order of a set differs from member to member: iterate over sorted(...)"
    assert sorted(told) == sorted(
        [
            "Careless.__init__: time.time differs from member to member: use self.now",
            "Careless.times: time.monotonic differs from member to member: use self.now",
            "Careless.times: datetime.datetime.now differs from member to member: use self.now",
            "Careless.times: datetime.date.today differs from member to member: use self.now",
            "Careless.dice: random.shuffle differs from member to member: use self.random",
            "Careless.dice: random.Random.choice differs from member to member: use self.random",
            "Careless.dice: uuid.uuid4 differs from member to member: use self.new_id()",
            "Careless.dice: uuid.uuid1 differs from member to member: use self.new_id()",
            "Careless.dice: os.urandom differs from member to member: use self.random",
            f"Careless.orders: {iterate}",
            f"Careless.orders: {iterate}",
            f"Careless.orders: {order}",
            f"Careless.orders: {order}",
            "Careless.orders: the element that a set pops differs from member to member: take min(...) and remove it",
            "Careless.outside: COUNT is outside the state, so no snapshot holds it",
            "Careless.outside: threading.Thread runs beside the log: a command is one step",
            "Careless.outside: asyncio.get_event_loop runs beside the log: a command is one step",
            "Careless.outside: open depends on the outside: do it before the call, and pass the result as an argument",
            "Careless.outside: hash differs from member to member",
            "Careless.refuse: PermissionError stops the node and is no result: raise a CommandError",
            "Careless.refuse: TimeoutError stops the node and is no result: raise a CommandError",
            "Careless.look: a query changes self.count on one member only: make it a command",
            "Careless.look: a query changes self.stock['A'] on one member only: make it a command",
            "Careless.look: a query changes self.stock['B'] on one member only: make it a command",
            "Careless.helper: id differs from member to member",
        ]
    )
    place = next(line for line in found if "COUNT" in line).split(": ")[0]
    path, _, number = place.rpartition(":")
    with open(path, encoding="utf-8") as file:
        assert file.readlines()[int(number) - 1].strip() == "global COUNT"


def test_the_careful_class_has_no_findings() -> None:
    assert lint(Careful) == []


def test_a_class_without_source_is_left_alone() -> None:
    namespace: dict[str, Any] = {"command": command, "ReplicatedActor": ReplicatedActor}
    exec("class Made(ReplicatedActor):\n @command\n def go(self): return id(self)", namespace)
    assert lint(namespace["Made"]) == []
