"""A holder container, seen from the harness: made, started, and given orders.

An order that is answered can be waited for in two ways: at once (an answer takes a millisecond), or
from the event loop.  Orders are carried out in the order in which they are given.
"""

import asyncio
import contextlib
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.docker.engine import EngineError, engine_does, last_lines
from harness.docker.project import Project
from harness.docker.streams import OUT, Streams
from harness.text import Lines

ANSWER_S = 5.0
_HELLO_S = 30.0
RIGHTS = ["NET_ADMIN", "NET_RAW", "SYS_PTRACE", "KILL", "DAC_OVERRIDE", "FOWNER"]
# Without this a healed connection stays silent for up to a minute of TCP back-off.
_SYSCTLS = {"net.ipv4.tcp_rto_max_ms": "1000"}
_SAID_MAX = 50

Event = Mapping[str, Any]


class Holder:
    """The holder of one node.  `on_event` is called from a thread of its own."""

    def __init__(
        self, project: Project, name: str, *, disk: bool = True, mounts: Sequence[str] = ()
    ) -> None:
        """Make and start it, and wait until it speaks.  Raises EngineError.

        `disk`: it has a data volume; `mounts` are more volumes, for the holder alone.
        """
        self.name = name
        self.on_event: Callable[[Event], None] = lambda _: None
        self.root = Path("/winkle", name)
        self.is_here = project.is_here
        self._api = project.api
        self._waiting: dict[int, Callable[[Event], None]] = {}
        self._numbers = itertools.count(1)
        self._sending = threading.Lock()
        self._said: deque[str] = deque(maxlen=_SAID_MAX)
        self._gone = True
        self.binds = [f"{project.volume(name)}:{self.root}"] if disk else []
        self._mounts = [*self.binds, *mounts]
        self._open(project)

    def _open(self, project: Project) -> None:
        self.container = self._create(project)
        self._streams = Streams(self._api, self.container)
        hello: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._waiting[0] = hello.put
        self._reader = threading.Thread(target=self._read, name=f"holder {self.name}", daemon=True)
        self._reader.start()
        self._start(hello)
        self._gone = not self._reader.is_alive()

    def _create(self, project: Project) -> str:
        root = [str(self.root)] if self.binds else []
        host = self._api.create_host_config(
            binds=self._mounts,
            cap_drop=["ALL"],
            cap_add=RIGHTS,
            network_mode=project.network,
            sysctls=_SYSCTLS if project.knows_rto_max else None,
        )
        with engine_does(f"the holder of {self.name} cannot be made"):
            made = self._api.create_container(
                project.image,
                ["python", "-P", "-m", "harness.docker.agent", *root],
                name=project.name(self.name, "holder"),
                hostname=self.name,
                labels=project.labels,
                stdin_open=True,
                host_config=host,
            )
        return str(made["Id"])

    def _start(self, hello: "queue.SimpleQueue[Event]") -> None:
        with engine_does(f"the holder of {self.name} cannot be started"):
            self._api.start(self.container)
        try:
            said = hello.get(timeout=_HELLO_S)
        except queue.Empty:
            said = {}
        if "datagrams" not in said:
            lines = last_lines(self._api, self.container)
            raise EngineError(f"the holder of {self.name} does not speak; {lines}")
        with engine_does(f"the holder of {self.name} cannot be looked at"):
            settings = self._api.inspect_container(self._addressed())["NetworkSettings"]
        (network,) = settings["Networks"].values()
        self.address = str(network["IPAddress"])
        self.datagrams = (self.address, int(said["datagrams"]))
        self.connections = (self.address, int(said["connections"]))

    def _addressed(self) -> str:
        """Return the container to which the address belongs."""
        return self.container

    # ------------------------------------------------------------------- orders

    def order(self, call: str, *arguments: Any) -> None:
        """Give an order that is not answered; lost when the holder is gone."""
        with contextlib.suppress(OSError):
            self._send(0, call, arguments)

    def ask(self, call: str, *arguments: Any, bound_s: float = ANSWER_S) -> Any:
        """Give an order and wait for the answer.  Raises OSError."""
        answers: queue.SimpleQueue[Event] = queue.SimpleQueue()
        number = self._expect(answers.put)
        try:
            self._send(number, call, arguments)
            return self._value(answers.get(timeout=bound_s))
        except queue.Empty:
            raise self._too_late(call, bound_s) from None
        finally:
            self._waiting.pop(number, None)

    async def request(self, call: str, *arguments: Any, bound_s: float = ANSWER_S) -> Any:
        """Give an order and wait for the answer while others go on.  Raises OSError."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Event] = loop.create_future()

        def settle(said: Event) -> None:
            if not answer.done():
                answer.set_result(said)

        def arrived(said: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                loop.call_soon_threadsafe(settle, said)

        number = self._expect(arrived)
        try:
            self._send(number, call, arguments)
            async with asyncio.timeout(bound_s):
                return self._value(await answer)
        except TimeoutError:
            raise self._too_late(call, bound_s) from None
        finally:
            self._waiting.pop(number, None)

    @property
    def gone(self) -> bool:
        """Whether its end was seen: nothing runs on its node then."""
        return self._gone

    def close(self) -> None:
        """End it, and every process of its node."""
        self._streams.end_input()
        self._streams.hang_up()
        self._reader.join()
        self._streams.close()

    # --------------------------------------------------------------------- line

    def _expect(self, answered: Callable[[Event], None]) -> int:
        number = next(self._numbers)
        self._waiting[number] = answered
        return number

    def _send(self, number: int, call: str, arguments: tuple[Any, ...]) -> None:
        line = msgspec.json.encode({"id": number, "call": call, "args": arguments}) + b"\n"
        if self._gone:
            raise BrokenPipeError(f"the holder of {self.name} is gone{self._last_words()}")
        with self._sending:
            self._streams.send(line)

    def _value(self, said: Event) -> Any:
        if "error" not in said:
            return said.get("value")
        if "errno" in said:
            raise OSError(said["errno"], said["error"])
        raise OSError(f"the holder of {self.name}: {said['error']}{self._last_words()}")

    def _too_late(self, call: str, bound_s: float) -> OSError:
        words = self._last_words()
        return TimeoutError(
            f"the holder of {self.name} did not answer {call} in {bound_s:g} s{words}"
        )

    def _last_words(self) -> str:
        return "; it printed:\n" + "".join(self._said) if self._said else ""

    def _read(self) -> None:
        """Take what it says, until it ends."""
        lines = Lines()
        for stream, data in self._streams.frames():
            if stream != OUT:
                self._said.append(data.decode(errors="backslashreplace"))
                continue
            for line in lines.take(data):
                self._take(msgspec.json.decode(line))
        self._gone = True
        for number in list(self._waiting):
            if answered := self._waiting.pop(number, None):
                answered({"errno": 32, "error": f"{os.strerror(32)}: the holder is gone"})

    def _take(self, said: Event) -> None:
        if said.get("event") not in (None, "hello"):
            self.on_event(said)
        elif answered := self._waiting.pop(said.get("id", 0), None):
            answered(said)
