"""One client for each process; errors show their remedy in their traceback."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.spark.cluster import RunningCluster
from viewstamp.errors import ClosedError, ConfigError, UnavailableError, UnknownTopicError
from viewstamp.spark import blocking_client as module
from viewstamp.spark.blocking_client import BlockingClient, blocking_client

CHILD = """
import os, sys
from viewstamp.spark.blocking_client import blocking_client

cluster, topic = sys.argv[1:]
link = blocking_client(cluster)
link.run(link.client.append, topic, b"parent")
child = os.fork()
if not child:
    own = blocking_client(cluster)
    assert own is not link
    own.run(own.client.append, topic, b"child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert blocking_client(cluster) is link
link.run(link.client.append, topic, b"parent again")
"""


def test_everybody_in_a_process_shares_one_client(cluster: RunningCluster, topic: str) -> None:
    """It keeps its connection and session, so that a task costs no handshake."""
    link = blocking_client(cluster.addresses)

    def append(number: int) -> None:
        mine = blocking_client(cluster.addresses)
        assert mine is link
        mine.run(mine.client.append, topic, str(number).encode())

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(cluster.values(topic)) == [b"0", b"1", b"2", b"3"]


def test_a_forked_process_gets_a_client_of_its_own(cluster: RunningCluster, topic: str) -> None:
    """Spark forks its workers, and a shared socket would mix the bytes of two processes."""
    done = subprocess.run([sys.executable, "-c", CHILD, cluster.addresses, topic], capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert cluster.values(topic) == [b"parent", b"child", b"parent again"]


def test_an_error_shows_its_remedy_where_spark_looks(cluster: RunningCluster) -> None:
    link = blocking_client(cluster.addresses)
    with pytest.raises(UnknownTopicError) as caught:
        link.run(link.client.describe_topic, "nowhere")
    text = "".join(traceback.format_exception(caught.value))
    assert "no topic is named 'nowhere'" in text
    assert "viewstamp topic create nowhere" in text


def client_threads() -> int:
    """Return the number of threads of clients; the nodes of this process have others, which come and go."""
    return sum(thread.name == "viewstamp" for thread in threading.enumerate())


def test_a_closed_connection_leaves_no_thread_and_says_that_it_is_closed(cluster: RunningCluster, topic: str) -> None:
    threads = client_threads()
    link = BlockingClient(cluster.addresses)
    link.run(link.client.append, topic, b"x")
    assert client_threads() == threads + 1
    link.close()
    link.close()
    assert client_threads() == threads
    with pytest.raises(ClosedError):
        link.run(link.client.append, topic, b"y")


def test_nothing_runs_before_it_is_used() -> None:
    threads = client_threads()
    BlockingClient("127.0.0.1:1").close()
    assert client_threads() == threads


def test_a_wrong_address_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        blocking_client("nonsense")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make Ctrl-C interrupt this process, also if it was started in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_who_is_interrupted_leaves_no_work_behind(cluster: RunningCluster) -> None:
    """A task that is killed while it waits must not continue to stage."""
    link = BlockingClient(cluster.addresses)
    started, ended = threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    def interrupt() -> None:
        assert started.wait(10)
        os.kill(os.getpid(), signal.SIGINT)
        while not ended.wait(5):  # Python does not notice a signal that arrives just before it waits for a lock.
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        link.run(work)
    assert ended.wait(10)
    link.close()


def free_address() -> str:
    """Return an address that refuses connections, because it was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_cluster_that_refuses_is_given_up_soon(cluster: RunningCluster) -> None:
    """A client retries until its timeout, a minute for planning. A mistyped port is reported sooner."""
    one, other = free_address(), free_address()
    link = BlockingClient(f"{one},{other}")
    try:
        with pytest.raises(UnavailableError) as raised:
            link.reach(0)
        assert f"{one} (connection refused), {other} (connection refused)" in raised.value.message
        assert "connectSeconds" in raised.value.remedy
    finally:
        link.close()
    link = BlockingClient("nowhere.invalid:7001")
    try:
        with pytest.raises(UnavailableError, match=r"nowhere.invalid:7001 \(host not found\)"):
            link.reach(0)
    finally:
        link.close()
    link = BlockingClient(f"{one},{cluster.addresses}")
    try:
        link.reach(0)
    finally:
        link.close()


def test_a_cluster_that_is_being_restarted_is_waited_for() -> None:
    address = free_address()
    link = BlockingClient(address)
    refused = threading.Event()
    asked = module._refusal

    async def watched(host: str, port: int) -> str:
        answer = await asked(host, port)
        refused.set()
        return answer

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(module, "_refusal", watched)
        reached = pool.submit(link.reach, 60)
        assert refused.wait(10)
        host, _, port = address.rpartition(":")
        with socket.create_server((host, int(port))):
            reached.result(30)
    link.reach(
        0
    )  # No node listens any more; but the client's own timeout applies to a cluster that was reached before.
    link.close()
