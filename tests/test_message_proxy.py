"""The proxy between workers and servers: transparent, and then each trick, by bytes that passed."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.proxy import Through, Tricks
from harness.trick import Hit, Trick, What

BOUND_S = 30.0  # for what must come: a busy machine is no finding
SILENCE_S = 0.15  # for what must not come


@dataclass
class Server:
    """Answers each line with the same in capitals; notes what it got and how connections ended."""

    pieces: list[bytes] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = b""
        try:
            while piece := await reader.read(4096):
                self.pieces.append(piece)
                *lines, said = (said + piece).split(b"\n")
                self.lines += [line + b"\n" for line in lines]
                writer.write(b"".join(line.upper() + b"\n" for line in lines))
                await writer.drain()
            self.ends.append("no more")
        except ConnectionError:
            self.ends.append("reset")
        finally:
            writer.close()


@dataclass
class Client:
    """A worker's connection; it hears a line, b"" at the end, `silence`, or `reset`."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, line: bytes, *expected: bytes) -> None:
        """Send a line, and hear one of these."""
        self.writer.write(line)
        await self.hear(*expected)

    async def hear(self, *expected: bytes) -> None:
        """Wait as long as it may take for an answer, and only a moment for silence."""
        bound_s = SILENCE_S if expected == (b"silence",) else BOUND_S
        try:
            heard = await asyncio.wait_for(self.reader.readline(), bound_s)
        except TimeoutError:
            heard = b"silence"
        except ConnectionError:
            heard = b"reset"
        assert heard in expected


@dataclass
class Bench:
    """A server, the tricks, and a proxy for the workers w1 and w2."""

    server: Server
    tricks: Tricks
    ports: dict[str, int]
    clients: list[Client] = field(default_factory=list)

    async def connect(self, worker: str = "w1") -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.ports[worker]))
        self.clients.append(client)
        return client

    def hit(self) -> Hit:
        (hit,) = self.tricks.hits("x")
        return hit

    def counts(self) -> list[int]:
        """Bytes of the message that were delivered, answered and returned."""
        hit = self.hit()
        return [hit.delivered, hit.answered, hit.returned]


async def until(look: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + BOUND_S
    while not look():
        assert time.monotonic() < deadline, f"waited {BOUND_S:g} s for {what}"
        await asyncio.sleep(0.002)


async def all_told() -> None:
    """Wait until every connection knows of its end: nothing but the test is left to run."""
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "the servers' tasks")
    await asyncio.sleep(0)  # a task that has ended leaves its transport to the next round


@asynccontextmanager
async def bench(talk: Callable[..., Any] | None = None) -> AsyncIterator[Bench]:
    server = Server()
    listening = await asyncio.start_server(talk or server.talk, "127.0.0.1", 0)
    address = listening.sockets[0].getsockname()
    tricks = Tricks()

    async def dial() -> socket.socket:
        stream = socket.socket()
        stream.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(stream, address)
        except OSError:
            stream.close()
            raise
        return stream

    throughs = []

    def accept(worker: str) -> asyncio.Protocol:
        throughs.append(Through(tricks, worker, "s1", "lock", dial))
        return throughs[-1].near

    loop = asyncio.get_running_loop()
    proxies = {
        name: await loop.create_server(lambda name=name: accept(name), "127.0.0.1", 0)  # type: ignore[misc]
        for name in ("w1", "w2")
    }
    ports = {name: proxy.sockets[0].getsockname()[1] for name, proxy in proxies.items()}
    made = Bench(server, tricks, ports)
    try:
        yield made
    finally:
        for client in made.clients:
            client.writer.transport.abort()
        for through in throughs:
            through.stop()
        for one in (*proxies.values(), listening):
            one.close()
        await all_told()


def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def live() -> None:
        async with bench() as made:
            await test(made)

    asyncio.run(live())


def test_without_a_trick_lines_and_ends_pass_both_ways() -> None:
    async def test(made: Bench) -> None:
        client = await made.connect()
        await client.ask(b"one\n", b"ONE\n")
        await client.ask(b"two\n", b"TWO\n")
        client.writer.write_eof()
        await client.hear(b"")
        await until(lambda: made.server.ends == ["no more"], "the end at the server")

    run(test)


def test_a_reset_passes_too() -> None:
    async def test(made: Bench) -> None:
        client = await made.connect()
        await client.ask(b"one\n", b"ONE\n")
        client.writer.write(b"half")
        client.writer.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )
        client.writer.transport.abort()
        await until(lambda: made.server.ends == ["reset"], "the reset at the server")

    run(test)


def test_what_is_sent_before_the_server_is_reached_is_not_lost_and_a_refusal_is_a_reset() -> None:
    async def live() -> None:
        async with bench() as made:
            client = await made.connect()
            client.writer.write(b"early\n")
            client.writer.write_eof()
            await client.hear(b"EARLY\n")
            await client.hear(b"")

    async def refused() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            tricks = Tricks()

            async def dial() -> socket.socket:
                raise ConnectionRefusedError

            loop = asyncio.get_running_loop()
            proxy = await loop.create_server(
                lambda: Through(tricks, "w1", "s1", "lock", dial).near, "127.0.0.1", 0
            )
            client = Client(*await asyncio.open_connection(*proxy.sockets[0].getsockname()))
            await client.hear(b"reset", b"")
            client.writer.close()
            proxy.close()
            await all_told()

    asyncio.run(live())
    asyncio.run(refused())


def test_megabytes_pass_whole_to_a_reader_that_is_slow() -> None:
    data = bytes(range(256)) * 20_000

    async def pour(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    async def live() -> None:
        async with bench(pour) as made:
            client = await made.connect()
            await asyncio.sleep(0.1)
            assert await asyncio.wait_for(client.reader.read(-1), BOUND_S) == data

    asyncio.run(live())


@pytest.mark.parametrize(
    ("what", "answer", "arrives"),
    [
        ("lose-reply", b"silence", True),
        ("lose-request", b"silence", False),
        ("reset-after-delivery", b"reset", True),
        ("half-open", b"silence", False),
        ("slow-close", b"SET\n", True),
    ],
)
def test_each_trick_does_what_it_says_to_one_message(
    what: What, answer: bytes, arrives: bool
) -> None:
    async def test(made: Bench) -> None:
        client = await made.connect()
        await client.ask(b"get\n", b"GET\n")
        made.tricks.arm("x", Trick(what, "lock", re.compile(b"set")), ["w1"])
        await client.ask(b"get\n", b"GET\n")
        assert made.tricks.hits("x") == []
        client.writer.write(b"set\n")
        if arrives:
            await until(lambda: b"set\n" in made.server.lines, "the message at the server")
        await client.hear(answer)
        assert (b"set\n" in made.server.lines) == arrives
        counts = [4 * arrives, 4 * arrives, 4 * (what == "slow-close")]
        await until(lambda: made.counts() == counts, "the kernel's counts")
        assert made.hit().reset == (what == "reset-after-delivery")
        await (await made.connect()).ask(b"set\n", b"SET\n")  # only one message was meant
        await _end(made, client, what)

    run(test)


async def _end(made: Bench, client: Client, what: What) -> None:
    """What each side is told of the end, during the trick and after it."""
    heard, ends = {
        "lose-reply": (b"silence", []),
        "lose-request": (b"silence", []),
        "reset-after-delivery": (b"reset", ["no more"]),
        "half-open": (b"silence", ["no more"]),
        "slow-close": (b"", []),
    }[what]
    if ends:
        await until(lambda: made.server.ends, "the end at the server")
    await client.hear(heard)
    assert made.server.ends == ends
    made.tricks.disarm("x")
    await until(lambda: len(made.server.ends) == 1, "the end at the server")
    await until(lambda: not made.hit().worker_open, "the end at the worker")
    await until(lambda: not made.hit().server_open, "the end of the connection to the server")
    await (await made.connect()).ask(b"set\n", b"SET\n")


def test_a_connection_stays_silent_and_the_next_ones_go_on() -> None:
    async def test(made: Bench) -> None:
        made.tricks.arm("x", Trick("lose-reply", "lock"), ["w1"])
        client = await made.connect()
        await client.ask(b"one\n", b"silence")
        await client.ask(b"two\n", b"silence")
        both = [b"one\n", b"two\n"]
        await until(lambda: made.server.lines == both, "both messages at the server")
        client.writer.close()
        await until(lambda: made.server.ends == ["no more"], "the end at the server")
        assert made.hit().returned == 0

    run(test)


def test_a_message_is_found_in_pieces_but_not_in_what_was_answered() -> None:
    async def test(made: Bench) -> None:
        client = await made.connect()
        await client.ask(b"set a nx\n", b"SET A NX\n")
        made.tricks.arm("x", Trick("lose-reply", "lock", re.compile(b"set.*nx", re.DOTALL)), ["w1"])
        await client.ask(b"get nx\n", b"GET NX\n")
        client.writer.write(b"set ")
        await until(lambda: made.server.pieces[-1] == b"set ", "the first piece at the server")
        await client.ask(b"a nx\n", b"silence")
        await until(lambda: made.hit().delivered > 0, "the kernel's count")

    run(test)


def test_only_so_many_messages_of_these_nodes_and_this_part() -> None:
    async def test(made: Bench) -> None:
        made.tricks.arm("x", Trick("lose-reply", "store"), ["w1"])
        await (await made.connect()).ask(b"a\n", b"A\n")
        made.tricks.arm("x", Trick("lose-reply", "lock", count=2), ["w1"])
        for worker, answer in zip(
            ("w2", "w1", "w1", "w1"), (b"A\n", b"silence", b"silence", b"A\n"), strict=True
        ):
            await (await made.connect(worker)).ask(b"a\n", answer)
        made.tricks.arm("y", Trick("lose-reply", "lock"), ["s1"])
        await (await made.connect("w2")).ask(b"a\n", b"silence")  # named by its server
        made.tricks.disarm("y")
        made.tricks.disarm("y")

    run(test)
