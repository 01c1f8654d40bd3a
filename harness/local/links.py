"""Bad links of a lab: orders to the packet engine, and bursts that measure what it makes of them.

The engine is a process of the sandbox: it is started when a run may need it, and dies with it.
"""

import asyncio
import json
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.local.burst import burst
from harness.local.lab import LocalNode
from harness.local.post import Post
from harness.shape import Shape
from harness.shaping import Shaping
from harness.site import Burst, Pair

ANSWER_S = 10.0  # an order takes milliseconds, the start a second; but a machine may be busy


class BadLinks(Shaping):
    """The links of a lab; see `harness.site.Links`."""

    def __init__(self, nodes: Mapping[str, LocalNode], seed: int, log: Path) -> None:
        super().__init__()
        self._nodes = nodes
        self._posts: dict[str, Post] = {}
        self._seed = seed
        self._log = log
        self._engine: subprocess.Popen[bytes] | None = None
        self._trouble: str | None = None
        # Orders are answered one by one, and bursts take their time: the loop waits for neither.
        self._orderly = ThreadPoolExecutor(1, "links")
        self._bursting = ThreadPoolExecutor(1, "bursts")

    def unavailable(self) -> str | None:
        """Return None when links can be made bad here, else why not: the engine tries at once."""
        if self._engine is None:
            ports = [f"{node.address}={node.port}" for node in self._nodes.values()]
            argv = [sys.executable, "-P", "-m", "harness.local.engine", str(self._seed), *ports]
            with self._log.open("ab") as log:
                self._engine = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
                )
            try:
                self._answer(self._engine)
            except OSError as error:
                self._trouble = f"this kernel cannot redirect packets: {error}"
        return self._trouble

    async def forget(self, pairs: frozenset[Pair]) -> None:
        """Lose what is held of pairs that were cut."""
        if lost := pairs & self.shaped_now().keys():
            await self._ask({"forget": [self._addresses(pair) for pair in sorted(lost)]})

    async def measure(
        self, pairs: Sequence[Pair], count: int, size_bytes: int, gap_s: float, wait_s: float
    ) -> Mapping[Pair, Burst]:
        """Send a burst over each pair and return what became of it."""
        if not self._posts:
            self._posts = {name: Post(node) for name, node in self._nodes.items()}
        loop = asyncio.get_running_loop()
        send = partial(burst, self._posts, pairs, count, size_bytes, gap_s, wait_s)
        return await loop.run_in_executor(self._bursting, send)

    async def _tell(self, bad: Mapping[Pair, Shape]) -> None:
        lines = [[*self._addresses(pair), asdict(shape)] for pair, shape in bad.items()]
        await self._ask({"lines": lines})

    def _addresses(self, pair: Pair) -> list[str]:
        return [self._nodes[name].address for name in pair]

    async def _ask(self, order: Mapping[str, Any]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._orderly, self._exchange, order)

    def _exchange(self, order: Mapping[str, Any]) -> None:
        engine = self._engine
        assert engine is not None, "the fault was not asked whether it is available"
        assert engine.stdin is not None
        try:
            engine.stdin.write(json.dumps(order).encode() + b"\n")
            engine.stdin.flush()
        except BrokenPipeError as error:
            raise HarnessError(f"the packet engine has ended; see {self._log}") from error
        self._answer(engine)

    def _answer(self, engine: "subprocess.Popen[bytes]") -> None:
        """Wait for the engine's answer.  Raises OSError (it refused), HarnessError (it is dead)."""
        assert engine.stdout is not None
        ready, _, _ = select.select([engine.stdout], [], [], ANSWER_S)
        line = engine.stdout.readline() if ready else b""
        if not line:
            raise HarnessError(f"the packet engine does not answer; see {self._log}")
        if complaint := json.loads(line).get("error"):
            raise OSError(complaint)
