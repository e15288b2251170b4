"""TLS: certificates are loaded and replaced, and each wrong one is an error on both sides that names the reason."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.certificates import CLUSTER, Authority, client, member
from tests.node.group import wait_for as wait_for_a_group
from viewstamp.errors import ConfigError, TlsError
from viewstamp.host.conformance import NETWORK_BEHAVIOURS
from viewstamp.host.interfaces import Connection, Network
from viewstamp.host.network import RealNetwork
from viewstamp.host.tls import Tls, TlsFiles, inspect, load
from viewstamp.host.tls_network import TlsNetwork
from viewstamp.host.tls_stream import TlsStream
from viewstamp.ids import CertificateName
from viewstamp.sim.loop import SimulatedLoop
from viewstamp.sim.network import LinkOptions, SimulatedNetwork

DAY = 86_400
Behaviour = Callable[[Network], Coroutine[Any, Any, None]]


async def wait_for(look: Callable[[], object]) -> None:
    await wait_for_a_group(look, lambda: "it does not happen")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "one")


class Ear:
    """A handler that stores the bytes and the end of its connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.heard = b""
        self.end: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def on_bytes(self, data: bytes) -> None:
        assert self.connection.identity is not None
        self.heard += data

    def on_closed(self, error: BaseException | None) -> None:
        self.end.set_result(error)


class Server:
    """A listener with TLS, and the ends of its connections."""

    def __init__(self, network: TlsNetwork | RealNetwork) -> None:
        self.network = network
        self.ears: list[Ear] = []

    def accept(self, connection: Connection) -> Ear:
        self.ears.append(Ear(connection))
        return self.ears[-1]

    async def listen(self) -> str:
        self.listener = await self.network.listen("127.0.0.1:0", self.accept)
        return self.listener.address

    async def last_error(self) -> BaseException | None:
        await wait_for(lambda: bool(self.ears) and self.ears[-1].end.done())
        return self.ears[-1].end.result()


def tls(files: TlsFiles) -> TlsNetwork:
    return TlsNetwork(RealNetwork(), Tls(files), plain_refusal=[b"no TLS"])


# -- Loading ---------------------------------------------------------------------------------------------------


def test_the_name_and_the_dates_are_those_of_the_certificate(authority: Authority) -> None:
    found = load(authority.sign(member("n1"), dns=["host1"], ends=5))
    assert found.name == CertificateName(CLUSTER, True, "n1")
    assert found.hosts == ("host1",)
    assert abs(found.validity.ends - time.time() - 5 * DAY) < 60
    assert found.server.minimum_version is ssl.TLSVersion.TLSv1_2
    assert found.server.verify_mode is found.client.verify_mode is ssl.CERT_REQUIRED


def test_a_certificate_ends_with_its_authority(tmp_path: Path) -> None:
    found = load(Authority(tmp_path, ends=2).sign(member("n1"), ends=5))
    assert abs(found.validity.ends - time.time() - 2 * DAY) < 60


def changed(files: TlsFiles, **named: str) -> TlsFiles:
    return TlsFiles(**{"authority": files.authority, "certificate": files.certificate, "key": files.key, **named})


WRONG: Mapping[str, tuple[Callable[[Authority, Path], TlsFiles], str]] = {
    "expired": (lambda one, _: one.sign(member("n1"), begins=-5, ends=-1), "has expired: it is valid from"),
    "not yet valid": (lambda one, _: one.sign(member("n1"), begins=1), "is not valid yet: it is valid from"),
    "of another authority": (
        lambda one, other: changed(one.sign(member("n1")), authority=str(Authority(other).file)),
        "no certificate that others accept: unable to get local issuer certificate",
    ),
    "with another's key": (
        lambda one, _: changed(one.sign(member("n1")), key=one.sign(member("n2")).key),
        "is not the one of the certificate",
    ),
    "no file": (lambda one, other: changed(one.sign(member("n1")), key=str(other / "gone.key")), "No such file"),
    "a directory": (lambda one, _: changed(one.sign(member("n1")), certificate=str(one.directory)), "Is a directory"),
    "no PEM": (lambda one, _: changed(one.sign(member("n1")), certificate=__file__), "no PEM file of the right kind"),
    "key and certificate exchanged": (
        lambda one, _: changed(one.sign(member("n1")), key=one.files("n1").certificate),
        "no PEM file of the right kind",
    ),
    "an authority that is none": (
        lambda one, _: changed(one.sign(member("n1")), authority=one.files("n1").key),
        "no PEM file of the right kind",
    ),
    "without a name": (lambda one, _: one.sign(dns=["host1"]), "names no part of a cluster"),
    "with two names": (lambda one, _: one.sign(member("n1"), member("n2")), "names no part of a cluster"),
    "with a longer name": (lambda one, _: one.sign(member("n1") + "/x", stem="n1"), "names no part of a cluster"),
    "with a name of another kind": (
        lambda one, _: one.sign("viewstamp://shop/root/n1", stem="n1"),
        "names no part of a cluster",
    ),
    "for servers only": (lambda one, _: one.sign(member("n1"), is_client=False), "unsuitable certificate purpose"),
    "of a member, for clients only": (
        lambda one, _: one.sign(member("n1"), is_server=False),
        "unsuitable certificate purpose",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong_are_refused_with_the_reason(case: str, authority: Authority, tmp_path: Path) -> None:
    make, message = WRONG[case]
    with pytest.raises(ConfigError) as caught:
        load(make(authority, tmp_path / "other"))
    assert message in caught.value.message
    assert caught.value.remedy


def test_the_error_about_a_date_names_the_dates_and_the_clock(authority: Authority) -> None:
    files = authority.sign(member("n1"), begins=0, ends=1)
    found = inspect(files)
    load(files, now=found.validity.begins)
    for now in (found.validity.begins - 1, found.validity.ends):
        with pytest.raises(ConfigError) as caught:
            load(files, now=now)
        assert caught.value.message.count("UTC") == 3


def test_a_certificate_of_a_client_needs_no_purpose_of_a_server(authority: Authority) -> None:
    assert not load(authority.sign(client(), is_server=False)).name.is_member


def test_the_certificate_of_another_node_is_refused(authority: Authority) -> None:
    with pytest.raises(ConfigError, match="viewstamp://shop/member/n2, but this is viewstamp://shop/member/n1"):
        Tls(authority.sign(member("n2")), expected=CertificateName(CLUSTER, True, "n1"))


# -- Renewal ---------------------------------------------------------------------------------------------------


class Renewed:
    """The certificate of n1, and the events that it reported."""

    def __init__(self, authority: Authority) -> None:
        self.events: list[str] = []
        self.tls = Tls(authority.sign(member("n1")), report=lambda event, _: self.events.append(event))
        self.first = self.tls.loaded

    @property
    def is_replaced(self) -> bool:
        self.tls.look()
        return self.tls.loaded is not self.first


def test_a_certificate_that_was_not_valid_yet_is_used_when_it_is_valid(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(authority)
    authority.sign(member("n1"), begins=1)
    assert not renewed.is_replaced
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 60)
    assert not renewed.is_replaced
    assert "is not valid yet" in renewed.tls.trouble
    monkeypatch.setattr(time, "time", lambda: now + 2 * DAY)
    assert renewed.is_replaced
    assert not renewed.tls.trouble
    assert renewed.events == ["! new certificate refused", "= certificate replaced"]


def test_a_refused_certificate_is_reported_again_when_the_reason_changes(authority: Authority) -> None:
    renewed = Renewed(authority)
    authority.sign(member("n1"), begins=1)
    assert not renewed.is_replaced
    authority.sign(member("n2"), stem="n1")
    assert not renewed.is_replaced
    assert renewed.events == ["! new certificate refused"] * 2


def test_a_file_with_an_earlier_time_of_change_is_loaded(authority: Authority) -> None:
    renewed = Renewed(authority)
    key = renewed.tls.files.key
    before, mode = os.stat(key), os.stat(key).st_mode
    while os.stat(key).st_ctime_ns == before.st_ctime_ns:
        os.chmod(key, mode)
    os.utime(key, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert renewed.is_replaced


def test_files_are_looked_at_again_after_no_thread_could_be_started(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(authority)
    started: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        started.append(thread)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    now = time.monotonic()
    for turn in (1, 2):
        monkeypatch.setattr(time, "monotonic", lambda turn=turn: now + 10 * turn)
        assert renewed.tls.current() is renewed.first
        assert len(started) == turn


# -- Connections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_each_side_learns_the_name_of_the_other(
    authority: Authority, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def work() -> None:
        server = Server(tls(authority.sign(member("n1"))))
        address = await server.listen()
        mine: list[Ear] = []

        def accept(connection: Connection) -> Ear:
            assert connection.identity == CertificateName(CLUSTER, True, "n1")
            mine.append(Ear(connection))
            return mine[-1]

        connection = await tls(authority.sign(client())).connect(address, accept)
        connection.send([b"x" * 100_000, b"", b"y"])
        await wait_for(lambda: bool(server.ears) and len(server.ears[0].heard) == 100_001)
        assert server.ears[0].connection.identity == CertificateName(CLUSTER, False, "alice")
        server.ears[0].connection.send([bytes(1_000_000)])
        server.ears[0].connection.close()
        assert await mine[0].end is None
        assert mine[0].heard == bytes(1_000_000)
        await server.listener.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work())


REFUSED: Mapping[str, tuple[Callable[[Authority, Path], tuple[TlsFiles, TlsFiles]], str, str]] = {
    "a client of another authority": (
        lambda one, other: (one.sign(member("n1")), known(one, Authority(other).sign(client()))),
        "refuses the certificate of viewstamp://shop/client/alice: no authority that it knows has signed it",
        "was refused: self-signed certificate in certificate chain",
    ),
    "a server of another authority": (
        lambda one, other: (known(Authority(other), one.sign(member("n1"))), Authority(other / "two").sign(client())),
        "was refused: ",
        "refuses the certificate of viewstamp://shop/member/n1: no authority",
    ),
    "a server of another cluster": (
        lambda one, other: (one.sign(member("n1", "other")), one.sign(client())),
        "names viewstamp://other/member/n1, and a member of cluster shop was expected",
        "ended the connection in the TLS handshake",
    ),
    "a server with the certificate of a client": (
        lambda one, other: (one.sign(client("bob")), one.sign(client())),
        "names viewstamp://shop/client/bob, and a member of cluster shop was expected",
        "ended the connection in the TLS handshake",
    ),
}


def known(one: Authority, files: TlsFiles) -> TlsFiles:
    """Make a side that accepts its own authority and ``one``, so that only the other side refuses."""
    both = Path(files.certificate).with_name("both.pem")
    both.write_bytes(Path(files.authority).read_bytes() + one.file.read_bytes())
    return changed(files, authority=str(both))


@pytest.mark.parametrize("case", REFUSED)
async def test_a_wrong_certificate_is_an_error_on_both_sides(case: str, authority: Authority, tmp_path: Path) -> None:
    make, here, there = REFUSED[case]
    of_server, of_client = make(authority, tmp_path / "other")
    server = Server(tls(of_server))
    address = await server.listen()
    mine: list[Ear] = []

    def accept(connection: Connection) -> Ear:
        mine.append(Ear(connection))
        return mine[-1]

    try:
        connection = await tls(of_client).connect(address, accept)
    except TlsError as failure:
        found: BaseException | None = failure
    else:  # With TLS 1.3 the handshake of the connecting side is over before the other side has refused.
        connection.send([b"secret"])
        found = await asyncio.wait_for(mine[0].end, 5)
    assert isinstance(found, TlsError)
    assert here in found.message
    error = await server.last_error()
    assert isinstance(error, TlsError), error
    assert there in error.message
    assert server.ears[0].heard == b""
    await server.listener.close()


async def test_expired_certificates_of_the_other_side_are_refused_with_both_times(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process goes on when its certificate expires, so the other side meets an expired one."""
    of_server = authority.sign(member("n1"))
    network = tls(of_server)
    old = inspect(authority.sign(member("n1"), begins=-5, ends=-1))
    monkeypatch.setattr(network._tls, "loaded", old)
    server = Server(network)
    address = await server.listen()
    with pytest.raises(TlsError) as caught:
        await tls(authority.sign(client())).connect(address, Ear)
    assert "was refused: certificate has expired" in caught.value.message
    assert caught.value.message.count("UTC") in (1, 3)  # The dates as well, if OpenSSL gives them away.
    error = await server.last_error()
    assert isinstance(error, TlsError)
    assert "refuses the certificate of viewstamp://shop/member/n1: it has expired" in error.message
    assert error.message.count("UTC") == 3
    await server.listener.close()


async def test_the_expired_certificate_of_a_client_is_refused_and_its_owner_gets_the_dates(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tls(authority.sign(member("n1"))))
    address = await server.listen()
    network = tls(authority.sign(client()))
    monkeypatch.setattr(network._tls, "loaded", inspect(authority.sign(client(), begins=-5, ends=-1)))
    mine: list[Ear] = []

    def accept(connection: Connection) -> Ear:
        mine.append(Ear(connection))
        return mine[-1]

    await network.connect(address, accept)
    error = await mine[0].end
    assert isinstance(error, TlsError)
    assert "refuses the certificate of viewstamp://shop/client/alice: it has expired" in error.message
    assert error.message.count("UTC") == 3
    error = await server.last_error()
    assert isinstance(error, TlsError)
    assert "was refused: certificate has expired; " in error.message
    assert server.ears[0].heard == b""
    await server.listener.close()


async def test_a_plain_connection_is_answered_and_refused(authority: Authority) -> None:
    server = Server(tls(authority.sign(member("n1"))))
    address = await server.listen()
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"VWSP hello")
    assert await reader.read() == b"no TLS"
    writer.close()
    error = await server.last_error()
    assert isinstance(error, TlsError)
    assert "does not speak TLS" in error.message
    await server.listener.close()


async def test_tls_to_a_plain_port_is_an_error_that_may_pass(authority: Authority) -> None:
    """It may be a node that stops, so a client tries again until its timeout."""

    class Deaf(Ear):
        def on_bytes(self, data: bytes) -> None:
            self.connection.abort()

    listener = await RealNetwork().listen("127.0.0.1:0", Deaf)
    with pytest.raises(ConnectionAbortedError, match="a node without"):
        await tls(authority.sign(client())).connect(listener.address, Ear)
    await listener.close()


@pytest.mark.parametrize("size", [1, 5, 50, 300, 1000])
async def test_damaged_bytes_end_the_connection_and_nothing_else(authority: Authority, size: int) -> None:
    """A process without a certificate cannot stop the listener, with any bytes."""
    server = Server(tls(authority.sign(member("n1"))))
    address = await server.listen()
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x16\x03\x01" + os.urandom(size) + bytes(20_000))
    await reader.read()
    writer.close()
    assert isinstance(await server.last_error(), TlsError)
    mine: list[Ear] = []

    def accept(connection: Connection) -> Ear:
        mine.append(Ear(connection))
        return mine[-1]

    (await tls(authority.sign(client())).connect(address, accept)).close()
    assert await mine[0].end is None
    await server.listener.close()


async def test_a_program_that_only_looks_whether_the_port_is_open_is_no_error(authority: Authority) -> None:
    server = Server(tls(authority.sign(member("n1"))))
    host, _, port = (await server.listen()).rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()
    assert await server.last_error() is None
    await server.listener.close()


async def test_the_listening_side_has_the_connection_before_the_handshake(authority: Authority) -> None:
    """So the limits of connections also apply to connections that never complete the handshake."""
    server = Server(tls(authority.sign(member("n1"))))
    host, _, port = (await server.listen()).rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x16")
    await wait_for(lambda: bool(server.ears))
    assert server.ears[0].connection.identity is None
    server.ears[0].connection.abort()
    assert isinstance(await server.last_error(), TlsError | None)
    writer.close()
    await server.listener.close()


def test_bytes_may_arrive_in_any_pieces(authority: Authority) -> None:
    here, there = load(authority.sign(member("n1"))), load(authority.sign(client()))
    wires: list[bytes] = []
    heard: list[bytes] = []

    class Inner:
        unsent_bytes = 0

        def send(self, buffers: Sequence[Any]) -> None:
            wires.extend(map(bytes, buffers))

        def close(self) -> None: ...

        def abort(self) -> None: ...

    class Handler:
        def on_bytes(self, data: bytes) -> None:
            heard.append(data)

        def on_closed(self, error: BaseException | None) -> None: ...

    one = TlsStream(Inner(), here, is_server=True, peer="client")
    two = TlsStream(Inner(), there, is_server=False, peer="server")
    one.handler = two.handler = Handler()
    two.begin()
    for side in (one, two, one):
        data, wires[:] = b"".join(wires), []
        for byte in data:
            side.on_bytes(bytes([byte]))
    assert one.is_open
    assert two.is_open
    sent = [b"a" * 100, memoryview(b"b" * 100_000), b"", bytearray(b"c" * 5000), b"d"]
    two.send(sent)
    data, at = b"".join(wires), 0
    for size in itertools.cycle([1, 4, 5, 30, 16_000, 40_000]):
        one.on_bytes(data[at : at + size])
        at += size
        if at >= len(data):
            break
    assert b"".join(heard) == b"".join(sent)
    assert len(wires) == 1, "one call of the operating system"


# -- The interface of a network -------------------------------------------------------------------------------


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("behaviour", NETWORK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_network_with_tls_conforms(
    behaviour: Behaviour, factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    tls = Tls(Authority(tmp_path).sign(member("n1")))
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(behaviour(TlsNetwork(RealNetwork(), tls)))


@pytest.mark.parametrize("behaviour", NETWORK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_tls_over_the_simulated_network_conforms(behaviour: Behaviour, tmp_path: Path) -> None:
    """The links split every chunk, so that records and handshakes arrive in pieces."""
    tls = Tls(Authority(tmp_path).sign(member("n1")))
    loop = SimulatedLoop(1)
    network = SimulatedNetwork(loop, options=LinkOptions(split=0.5, delay_mean=0.01))
    loop.run_until_complete(behaviour(TlsNetwork(network.view("n1"), tls)))
    assert not network.connections
    loop.close()


# -- Renewal ---------------------------------------------------------------------------------------------------


def replace(old: TlsFiles, new: TlsFiles) -> None:
    shutil.copy(new.certificate, old.certificate)
    shutil.copy(new.key, old.key)


async def test_a_renewed_certificate_is_used_without_a_restart(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewstamp.host.tls._LOOK_SECONDS", 0.0)
    files = authority.sign(member("n1"), ends=2)
    reports: list[str] = []
    held = Tls(files, report=lambda event, fields: reports.append(event))
    first = held.loaded
    replace(files, authority.sign(member("n1"), stem="renewed", ends=9))
    await wait_for(lambda: held.current() is not first)
    assert held.loaded.validity.ends > first.validity.ends
    assert held.trouble == ""
    assert "= certificate replaced" in reports


@pytest.mark.parametrize("case", ["expired", "another node", "no key", "gone"])
async def test_a_broken_certificate_is_not_used_and_reported(
    case: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewstamp.host.tls._LOOK_SECONDS", 0.0)
    files = authority.sign(member("n1"))
    reports: list[Mapping[str, object]] = []
    held = Tls(files, report=lambda event, fields: reports.append({"event": event, **fields}))
    first = held.loaded
    match case:
        case "expired":
            replace(files, authority.sign(member("n1"), stem="other", begins=-3, ends=-1))
        case "another node":
            replace(files, authority.sign(member("n2")))
        case "no key":
            shutil.copy(authority.sign(member("n2")).key, files.key)
        case "gone":
            os.remove(files.certificate)
    await wait_for(lambda: bool(held.current() and held.trouble))
    assert held.loaded is first
    assert held.status["trouble"] == held.trouble
    assert reports[-1]["event"] == "! new certificate refused"
    replace(files, authority.sign(member("n1"), stem="good"))
    await wait_for(lambda: held.current() is not first)
    assert held.trouble == ""


@pytest.mark.parametrize("case", ["expired", "another authority"])
async def test_files_that_were_renewed_meanwhile_are_used_by_the_next_connection(
    case: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections of a process may outlive its certificate, and then it has not looked at the files for long."""
    monkeypatch.setattr("viewstamp.host.tls._LOOK_SECONDS", 1e9)
    files = authority.sign(client())
    network = tls(files)
    if case == "expired":
        monkeypatch.setattr(network._tls, "loaded", inspect(authority.sign(client(), stem="old", begins=-5, ends=-1)))
        server = Server(tls(authority.sign(member("n1"))))
        replace(files, authority.sign(client(), stem="new"))
    else:
        other = Authority(tmp_path / "other")
        server = Server(tls(other.sign(member("n1"))))
        new = other.sign(client())
        replace(files, new)
        shutil.copy(new.authority, files.authority)
    address = await server.listen()
    mine: list[Ear] = []

    def accept(connection: Connection) -> Ear:
        mine.append(Ear(connection))
        return mine[-1]

    connection = await network.connect(address, accept)
    connection.send([b"hello"])
    await wait_for(lambda: bool(server.ears) and server.ears[-1].heard == b"hello")
    assert len(mine) == 1
    connection.abort()
    await wait_for(lambda: all(ear.end.done() for ear in server.ears))
    await server.listener.close()
