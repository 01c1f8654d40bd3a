"""Bad links and lost messages between containers: what happens, to whom, and what undoes it."""

import asyncio
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from harness.backend import Proxying
from harness.docker.holder import Holder
from harness.docker.lab import DockerLab
from harness.docker.links import BadLinks
from harness.docker.proxies import Proxies
from harness.shape import Shape
from harness.site import Burst, Pair
from harness.target import Place
from harness.trick import Trick
from tests.support_docker import lab, live, needs_engine, until
from tests.support_docker import node as node_of

pytestmark = needs_engine()
AB: Pair = ("a", "b")
BA: Pair = ("b", "a")
AC: Pair = ("a", "c")
LOST_S = 1.0  # what has not arrived by then is lost, where a shape loses packets
RATED, RATED_S = 168, 1.6  # packets: half as fast again as the rate, and its queue takes them
BOUND_S = 30.0  # for what must arrive: a busy machine is no finding


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerLab]:
    with lab(tmp_path_factory.mktemp("lab"), "a", "b", "c") as made:
        assert made.links.unavailable() is None
        assert made.network.unavailable() is None
        yield made


async def burst(
    here: DockerLab, pair: Pair, count: int = 50, size: int = 64, lasts_s: float = 0.5
) -> Burst:
    """Send packets for so long that not all of them fall into a pause of this machine."""
    loses = here.links.shaped_now().get(pair, Shape()).loss > 0
    wait_s = LOST_S if loses else BOUND_S
    return (await here.links.measure([pair], count, size, lasts_s / count, wait_s))[pair]


def good(seen: Burst) -> bool:
    assert seen.least_s is not None
    return seen.least_s < 0.01 and [seen.lost, seen.doubled, seen.swapped] == [0, 0, 0]


def test_each_thing_happens_to_this_direction_of_this_link_and_ends(here: DockerLab) -> None:
    async def work() -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name, shape, count in (
            ("delay", Shape(delay_s=0.03), 50),
            ("loss", Shape(loss=0.2), 400),
            ("duplicate", Shape(duplicate=0.2), 400),
            ("reorder", Shape(reorder=0.2), 400),
        ):
            await here.links.shape("x", [AB], shape)
            seen[name] = await burst(here, AB, count)
        await here.links.shape("x", [AB], Shape(rate_bytes_s=100_000))
        seen["rate"] = await burst(here, AB, RATED, 1400, RATED_S)
        # At once, as two faults may do it.
        seen["back"], seen["other"] = await asyncio.gather(burst(here, BA), burst(here, AC))
        await here.links.unshape("x")
        await here.links.unshape("x")
        return seen | {"after": await burst(here, AB)}

    seen = live(work)
    assert seen["delay"].least_s >= 0.03
    assert 40 <= seen["loss"].lost <= 130
    assert 40 <= seen["duplicate"].doubled <= 130
    assert 20 <= seen["reorder"].swapped <= 130
    assert 60_000 <= seen["rate"].rate_bytes_s <= 130_000  # sent at 147,000
    assert all(good(seen[name]) for name in ("back", "other", "after"))


def test_a_bad_link_does_not_bypass_a_cut(here: DockerLab) -> None:
    """Case C15; and what was under way when the link was cut does not arrive after the cut."""

    async def work() -> None:
        await here.links.shape("x", [AB, BA], Shape(delay_s=3.0))
        port = await sent(here, AB, 20)
        await here.network.cut("y", [AB])
        assert (await here.network.passes([AB], 3.1))[AB].nothing
        await here.network.mend("y")
        assert await arrived(here, AB, 20, LOST_S) == 0, port
        slow = await burst(here, AB)
        assert slow.least_s is not None
        assert slow.least_s >= 3.0
        await here.links.unshape("x")

    live(work)


def test_what_is_held_arrives_when_the_link_is_good_again(here: DockerLab) -> None:
    async def work() -> None:
        await here.links.shape("x", [AB], Shape(delay_s=3600.0))
        await here.links.shape("y", [AB], Shape(delay_s=3600.0))
        await sent(here, AB, 20)
        await here.links.unshape("x")
        assert await arrived(here, AB, 1, 0.2) == 0
        await sent(here, AB, 20)
        await here.links.unshape("y")
        assert await arrived(here, AB, 20, BOUND_S) == 20

    live(work)


async def sent(here: DockerLab, pair: Pair, count: int) -> int:
    """Let one node listen and another send, until all of it has been sent; return the port."""
    near, far = (node_of(here, name).holder for name in pair)
    port = int(await far.request("listen", 7, [0]))
    await near.request("burst", 7, [[0, far.address, port]], count, 64, 0.0)
    return port


async def arrived(here: DockerLab, pair: Pair, count: int, wait_s: float) -> int:
    """Return how many of so many arrived, at most so long later."""
    far = node_of(here, pair[1]).holder
    told = await far.request("arrived", count, 64, count, wait_s, bound_s=wait_s + BOUND_S)
    return count - msgspec.convert(told["0"], Burst).lost


RECEIVE = """
import hashlib, socket
listener = socket.create_server(("", 7000))
stream, _ = listener.accept()
print(hashlib.sha256(stream.makefile("rb").read()).hexdigest())
"""
SEND = """
import socket, sys, time
while True:
    try:
        stream = socket.create_connection((sys.argv[1], 7000))
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
stream.sendall(bytes(range(256)) * 8192)
stream.close()
"""


def test_tcp_still_carries_every_byte(here: DockerLab, tmp_path: Path) -> None:
    """Large segments stay whole on their way through the engine, checksums included."""
    log = tmp_path / "log"

    async def work() -> None:
        a, b = node_of(here, "a"), node_of(here, "b")
        shape = Shape(delay_s=0.001, loss=0.01, duplicate=0.05, reorder=0.05)
        await here.links.shape("x", [AB, BA], shape)
        b.spawn(["python", "-c", RECEIVE], log=log)
        a.spawn(["python", "-c", SEND, b.address], log=tmp_path / "sender")
        await until(lambda: log.exists() and log.read_text().endswith("\n"), "the whole stream")
        await here.links.unshape("x")

    live(work)
    assert log.read_text().strip() == hashlib.sha256(bytes(range(256)) * 8192).hexdigest()


# ---------------------------------------------------------------------------------------- messages

ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(100):
            self.request.sendall(data)
server = socketserver.ThreadingTCPServer(("", 7001), Echo)
print("ready")
server.serve_forever()
"""
ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as stream:
    stream.sendall(b"request")
    stream.settimeout(float(sys.argv[2]))
    try:
        print("reply" if stream.recv(100) else "end")
    except TimeoutError:
        print("silence")
    except ConnectionResetError:
        print("reset")
"""


def test_the_next_message_of_all_workers_is_lost_and_no_other(
    here: DockerLab, tmp_path: Path
) -> None:
    c = node_of(here, "c")
    place = Place("c", c.address, 7001, role="lock", data="")

    async def said(worker: str, proxies: Proxying, wait_s: float) -> str:
        (record,) = proxies.addresses(worker, {"lock": [{"name": "c"}]})["lock"]
        how: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        log = tmp_path / worker
        ask = ["python", "-c", ASK, str(record["port"]), str(wait_s)]
        node_of(here, worker).spawn(ask, log=log).watch(how.get_loop(), how.set_result)
        await how
        return log.read_text().split()[-1]

    async def work() -> None:
        c.spawn(["python", "-u", "-c", ECHO], log=tmp_path / "c")
        proxies = here.proxies(["a", "b"], {"lock": [place], "store": []})
        assert proxies.unavailable("store") == "the store has no server process of its own"
        assert proxies.unavailable("lock") is None
        assert proxies.unavailable("lock") is None
        await proxies.open()
        await until((tmp_path / "c").read_text, "the server")
        assert await said("a", proxies, BOUND_S) == "reply"
        trick = Trick("lose-reply", "lock", re.compile(b"re.u"), count=1)
        await proxies.arm("x", trick, ["a", "b"])
        both = await asyncio.gather(*(said(name, proxies, 5.0) for name in "ab"))
        assert sorted(both) == ["reply", "silence"]
        (hit,) = await proxies.hits("x")
        assert hit.delivered == 7
        assert hit.answered >= 7
        assert hit.returned == 0
        await here.network.cut("y", [("c", "a")])
        assert await said("a", proxies, 0.5) == "silence", (
            "a proxy is on its worker's side of a cut"
        )
        await here.network.mend("y")
        await proxies.arm("x", Trick("lose-request", "lock"), ["b"])
        asked = asyncio.create_task(said("b", proxies, BOUND_S))
        while not await proxies.hits("x"):  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.02)
        await here._hub.request("heal")
        assert await asked == "reset"
        await proxies.disarm("x")
        c.kill()

    live(work)


# ---------------------------------------------------------------------------------- what is refused


class Unable:
    """A holder whose kernel cannot."""

    def ask(self, call: str, *arguments: Any) -> None:
        raise OSError(95, "Operation not supported")


def test_an_engine_whose_kernel_cannot_says_so() -> None:
    holders = cast("Mapping[str, Holder]", {"w1": Unable()})
    told = BadLinks(holders, 1).unavailable()
    assert told == "the engine's kernel cannot redirect packets: Operation not supported"
    proxies = Proxies(holders["w1"], holders, ["w1"], {"lock": [], "store": []})
    told = proxies.unavailable("lock")
    assert told == "no proxy can stand beside the workers: Operation not supported"


# -------------------------------------------------------------------------------------- whole runs

FILE = """
lock: atlasmart
store: atlasmart
time: 6s
ttl: 1s
seed: 3
faults:
- {kind: pause, who: holder, at: before-write, for: 2.5leases}
- {kind: message, who: all, match: acquire, at: 500ms, for: 2s}
- {kind: link, who: store1, delay: 20ms, loss: 0.1, at: 3s, for: 1s}
"""


def test_one_file_means_the_same_in_containers_and_in_namespaces(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(FILE)
    argv = [sys.executable, "-P", "-m", "harness.cli", "run", str(file), "--json"]
    living = {
        backend: subprocess.Popen(
            [*argv, "--backend", backend, "--out", str(tmp_path / backend)],
            env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
            stdout=subprocess.PIPE,
        )
        for backend in ("docker", "local")
    }
    ends = {name: run.communicate(timeout=120)[0] for name, run in living.items()}
    said = {name: msgspec.json.decode(end) for name, end in ends.items()}
    told = {name: (verdict(one), proofs(tmp_path / name)) for name, one in said.items()}
    assert told["docker"] == told["local"]
    (kind, anomalies), windows = told["docker"]
    assert kind == "fail", said
    assert "stale-owner-write" in anomalies
    assert windows == {("link", "installed"), ("message", "installed"), ("pause", "installed")}


def verdict(said: Any) -> tuple[str, set[str]]:
    found = said["results"]["verdict"]
    return found["verdict"], {anomaly["name"] for anomaly in found["anomalies"]}


def proofs(folder: Path) -> set[tuple[str, str]]:
    """Return what the windows of the run in a folder prove: kind and grade of each."""
    (lines,) = folder.glob("2*/faults.jsonl")
    windows = [msgspec.json.decode(line) for line in lines.read_bytes().splitlines()]
    (lost,) = (window for window in windows if window["kind"] == "message")
    (hit, *_) = lost["on"]["facts"]["hits"]
    assert hit["delivered"] > 0
    assert hit["answered"] > 0
    assert hit["returned"] == 0
    return {(window["kind"], window["grade"]) for window in windows}
