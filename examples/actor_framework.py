"""A pool of connections, rate-limited and restarted: the actor framework alone, without a cluster.

    python examples/actor_framework.py

A server returns a price for each line that it receives, and closes the connection instead of every 15th answer. Three
workers have a connection each. A worker that loses its connection is restarted with a new one. The pool gives questions
to workers at a limited rate, and repeats those that failed. `docs/guides/actor-framework.md` explains the parts.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial

from viewstamp.actors import Actor, AsyncActor, Loss, Ref, Reply, Restart, System
from viewstamp.errors import OverloadedError, UnavailableError, ViewstampError

HANGS_UP_ON = 15
WAITING_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Question:
    """A request for the price of ``sku``."""

    sku: str
    reply: Reply[int]


@dataclass(frozen=True, slots=True)
class Done:
    """A worker has finished a question: the future has its answer, or an error."""

    worker: Ref[Question]
    question: Question
    answer: asyncio.Future[int]


class Tick:
    """The pool may give out the next question."""


class Worker(AsyncActor[Question]):
    """One connection. The class has no code for a lost connection: it fails, and is restarted with a new connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writer: asyncio.StreamWriter | None = None

    async def on_start(self) -> None:
        """Connect. If that fails, the supervisor tries again after a longer pause."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def on_message(self, message: Question) -> None:
        """Send the question to the server, and resolve it with the answer."""
        assert self.writer is not None
        self.writer.write(f"{message.sku}\n".encode())
        line = await self.reader.readline()
        if not line:
            raise ConnectionResetError("the server closed the connection")
        message.reply.resolve(int(line))

    async def on_stop(self, error: BaseException | None) -> None:
        """Close the connection."""
        if self.writer is not None:
            self.writer.close()


class Pool(Actor[Question | Done | Tick]):
    """Owns the workers and the questions that wait for them; gives out one question for each tick."""

    def __init__(self, port: int, *, workers: int, rate: float) -> None:
        self.port = port
        self.workers = workers
        self.rate = rate
        self.idle: deque[Ref[Question]] = deque()
        self.waiting: deque[Question] = deque()

    def on_start(self) -> None:
        """Spawn the workers. If one of them fails more than 20 times in a minute, the pool fails."""
        supervisor = Restart(delay_first=0.01, delay_max=0.5, restarts_max=20, window=60.0)
        for number in range(self.workers):
            self.idle.append(self.spawn(partial(Worker, self.port), name=str(number), supervisor=supervisor))
        self.schedule(0.0, Tick(), every=1 / self.rate)

    def on_message(self, message: Question | Done | Tick) -> None:
        """Accept a question, give one to a worker, or take a worker's result."""
        match message:
            case Question() if len(self.waiting) >= WAITING_MAX:
                message.reply.fail(OverloadedError(f"{WAITING_MAX} questions wait", remedy="ask a little later"))
            case Question():
                self.waiting.append(message)
            case Tick():
                if self.waiting and self.idle:
                    self.hand_out(self.waiting.popleft(), self.idle.popleft())
            case Done(worker, question, answer):
                self.idle.append(worker)
                match answer.exception():
                    case None:
                        question.reply.resolve(answer.result())
                    case UnavailableError():  # The worker failed. Asking again is harmless, because it changes nothing.
                        self.waiting.appendleft(question)
                    case error:
                        question.reply.fail(ViewstampError(f"no price of {question.sku}: {error!r}"))

    def hand_out(self, question: Question, worker: Ref[Question]) -> None:
        """Ask a worker. The answer comes as a message, because a turn must never wait."""
        answer: asyncio.Future[int] = worker.ask(partial(Question, question.sku), timeout=5.0, changes=False)
        answer.add_done_callback(lambda done: self.ref.put(Done(worker, question, done)))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asked: list[str]) -> None:
    """Answer the questions of one connection. ``asked`` gets the questions of all connections."""
    while line := await reader.readline():
        asked.append(line.decode().strip())
        if len(asked) % HANGS_UP_ON == 0:
            break
        writer.write(f"{len(asked[-1]) * 100}\n".encode())
    writer.close()


async def main(count: int = 100, rate: float = 200.0) -> None:
    """Ask for ``count`` prices at once, and print the results."""
    asked: list[str] = []
    server = await asyncio.start_server(partial(serve, asked=asked), "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    async with server:
        system = System("prices")
        pool = system.spawn(partial(Pool, server.sockets[0].getsockname()[1], workers=3, rate=rate), name="pool")
        began = loop.time()
        prices: list[int] = await asyncio.gather(
            *(pool.ask(partial(Question, f"sku-{number}"), timeout=30.0, changes=False) for number in range(count))
        )
        seconds = loop.time() - began
        await system.stop(grace=1.0)
    print(f"{len(prices)} prices, {sum(prices) / 100:.2f} in all, for {len(asked)} questions")
    print(f"{system.dead_letters.counts[Loss.FAILED]} times the server hung up, and a worker was restarted")
    print(f"{len(asked) / seconds:.0f} questions a second")


if __name__ == "__main__":
    asyncio.run(main())
