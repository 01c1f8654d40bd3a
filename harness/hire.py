"""The workers of a run: how each is started, and started again in its seat."""

import asyncio
from collections.abc import Callable, Sequence

from harness.backend import Lab
from harness.controller import Controller
from harness.crew import Worker
from harness.folder import RunFolder
from harness.protocol import Hello

WORKERS_READY_S = 30.0


class Crew:
    """All workers by name; `hello` says what each is told to connect to."""

    def __init__(
        self,
        controller: Controller,
        lab: Lab,
        folder: RunFolder,
        hello: Callable[[str], Hello],
    ) -> None:
        self._controller = controller
        self._lab = lab
        self._folder = folder
        self._hello = hello

    async def hire(self, names: Sequence[str]) -> None:
        """Start the workers and wait until each is connected.  Raises HarnessError, OSError."""
        workers = [self._worker(name) for name in names]
        self._controller.admit(workers)
        for worker in workers:
            self._start(worker)
        await self._controller.all_ready(WORKERS_READY_S)

    def order_end(self, name: str) -> None:
        """Expect the end of a worker."""
        self._controller.order_end(name)

    def start_one(self, name: str) -> None:
        """Start a worker again in its seat.  Raises OSError."""
        worker = self._worker(name)
        self._controller.seat_again(worker)
        self._start(worker)

    def alive(self, name: str) -> bool:
        """Whether the worker's process lives, as far as the controller was told."""
        return self._controller.seats[name].worker.alive

    def missing(self, name: str) -> str | None:
        """Return None when the worker is connected, else what is missing."""
        return None if self._controller.seats[name].ready else f"{name} is not connected yet"

    def last_lines(self, name: str) -> str:
        """The last lines of a worker's log, introduced."""
        said = self._controller.seats[name].last_words()
        return f"the last lines of {name}'s log:\n{said}" if said else f"{name}'s log is empty"

    def _worker(self, name: str) -> Worker:
        return Worker(name, self._lab.nodes[name], self._folder.log(name), self._controller)

    def _start(self, worker: Worker) -> None:
        worker.start(list(self._lab.worker_argv), asyncio.get_running_loop())
        worker.send(self._hello(worker.name))
