"""The life of one run, inside its sandbox.

::

    nodes → servers → workers → main phase with faults → heal → final reads → save → judge → report
                                                                                   → tear down

Judging comes before tear-down, and the sandbox's end is the tear-down: nothing that fails there
can change a verdict that is already on disk.  SIGINT and SIGTERM end the main phase early; the
rest of the life goes on as always.
"""

import asyncio
import contextlib
import os
import platform
import signal
import sys
from pathlib import Path
from typing import Any

from harness import assemble
from harness._version import __version__
from harness.clock import MonotonicClock
from harness.controller import Controller
from harness.errors import HarnessError, WinkleError
from harness.folder import Record, RunFolder
from harness.generator import Generator
from harness.hire import Crew
from harness.ledger import Ledger, ledger_folder
from harness.local.lab import Lab
from harness.nemesis import Nemesis
from harness.note import LEFTOVER, Note
from harness.progress import Progress
from harness.protocol import Hello
from harness.roles import Roles
from harness.servers import Parts, Servers
from harness.site import Site
from harness.spec import RunSpec
from harness.target import Leader, StoreLog
from harness.trap import Traps
from harness.upkeep import Keeper

DATA = Path("/dev/shm/winkle")
FINAL_S = 10.0


def main(run_dir: Path) -> int:
    """Run what `run.yaml` in the folder describes, judge it, and return the exit code."""
    from harness.judge import HARNESS_ERROR, exit_code, finish

    folder = RunFolder(run_dir)
    try:
        spec, recorded = folder.spec()
        run = Run(folder, spec, quiet=bool(recorded.get("quiet")))
        asyncio.run(run.live())
    except WinkleError as error:
        sys.stderr.write(f"{error}\n")
        with contextlib.suppress(OSError):  # a full disk is one of the reasons to come here
            folder.write("error.txt", str(error).encode())
    try:
        return exit_code(finish(folder))
    except OSError as error:
        sys.stderr.write(f"the verdict cannot be written: {error}\n")
        return HARNESS_ERROR


class Run:
    """One run: what was asked for, where it lives, and what is there to be told."""

    def __init__(self, folder: RunFolder, spec: RunSpec, *, quiet: bool) -> None:
        self.folder = folder
        self.spec = spec
        self.interrupted = False
        self._controller: Controller | None = None
        self._progress = Progress(spec, quiet=quiet)
        self._parts = Parts(*assemble.targets(spec))
        self._workload = assemble.workload(spec)
        self._faults = assemble.faults(spec)
        names = [server.name for server in self._parts.servers] + spec.worker_names()
        self._progress.step("network")
        self._lab = Lab(names, DATA)
        for node in self._lab.nodes.values():
            # Without this a healed connection stays silent for up to a minute of TCP back-off.
            node.sysctl("net.ipv4.tcp_rto_max_ms", "1000")
        self._servers = Servers(self._parts, self._lab.nodes, folder)
        self._keeper = Keeper(self._lab.nodes, self._servers)
        self._site = self._make_site()
        for fault in self._faults:
            if reason := fault.available(self._site):
                raise HarnessError(f"{fault.name} cannot work here: {reason}")

    def _make_site(self) -> Site:
        """Gather what faults may touch."""
        names = self._parts.names()
        return Site(
            nodes=self._lab.nodes,
            lock_servers=names["lock"],
            store_servers=names["store"],
            workers=self.spec.worker_names(),
            ttl_s=self.spec.ttl_s,
            seed=self.spec.seed,
            upkeep=self._keeper,
            target=self._parts.lock,
            cluster=self._servers.lock_cluster,
        )

    async def live(self) -> None:
        """Live the whole life.  Raises HarnessError."""
        clock = MonotonicClock()
        record = Record(self.folder)
        ledger = Ledger(
            ledger_folder() / f"{self.folder.path.name}.{os.getpid()}.{clock.origin_ns}.jsonl",
            self.folder.path,
            self.spec.backend,
        )
        try:
            self._progress.step("servers")
            await self._servers.start()
            self._keeper.watch(
                lambda why: record.note(Note(time_ns=clock.now_ns(), kind="problem", why=why))
            )
            self._save_facts()
            traps = Traps(lambda _: None)
            self._controller = controller = Controller(clock, record.history, record.note, traps)
            await self._hire(controller)
            nemesis = self._nemesis(controller, ledger, clock, record)
            await self._main_phase(controller, nemesis, clock, record)
            await self._final_phase(controller, clock, record)
            await self._save_store_log()
            record.mark(clock.now_ns(), "end")
        except OSError as error:
            raise HarnessError(f"the record cannot be written: {error}") from error
        finally:
            self._progress.close()
            if self._controller is not None:
                self._controller.dismiss()
            record.close()
            ledger.close()

    async def _hire(self, controller: Controller) -> None:
        """Start the workers and wait until each is connected."""
        self._progress.step("workers")
        self._keeper.crew = Crew(controller, self._lab.nodes, self.folder, self._hello)
        await self._keeper.crew.hire(self.spec.worker_names())

    def _hello(self, name: str) -> Hello:
        spec = self.spec
        both = assemble.merged(spec) if spec.one_target else None
        return Hello(
            worker=name,
            lock={"name": spec.lock.name, "options": both or dict(spec.lock.options)},
            store={"name": spec.store.name, "options": both or dict(spec.store.options)},
            servers=self._servers.records(),
            ttl_s=spec.ttl_s,
            op_timeout_s=spec.op_timeout_s,
        )

    def _nemesis(
        self, controller: Controller, ledger: Ledger, clock: MonotonicClock, record: Record
    ) -> Nemesis:
        target = self._parts.lock
        leader = (target, self._servers.lock_cluster) if isinstance(target, Leader) else None
        roles = Roles(self._lab.nodes, self._parts.names(), controller, leader)
        return Nemesis(
            self.spec, self._faults, controller, roles, self._site, ledger, clock, record.window
        )

    async def _main_phase(
        self, controller: Controller, nemesis: Nemesis, clock: MonotonicClock, record: Record
    ) -> None:
        """Run the workload under faults, then undo all of them."""
        record.mark(clock.now_ns(), "main")
        until_ns = clock.now_ns() + int(self.spec.time_s * 1e9)
        watch = asyncio.create_task(self._progress.watch(controller, nemesis, until_ns))
        work = asyncio.create_task(
            controller.run(self._generators(self._workload.generators(self.spec)), until_ns)
        )
        self._on_signals(work, record, clock)
        nemesis.begin()
        try:
            await asyncio.wait({work})
        finally:
            watch.cancel()
            self._progress.step("heal")
            await nemesis.end()
        for text in nemesis.leftovers:
            record.note(Note(time_ns=clock.now_ns(), kind="problem", why=f"{LEFTOVER}{text}"))
        if not work.cancelled():
            work.result()

    def _on_signals(
        self, work: "asyncio.Task[None]", record: Record, clock: MonotonicClock
    ) -> None:
        def interrupt() -> None:
            if not self.interrupted:
                self.interrupted = True
                record.mark(clock.now_ns(), "interrupted")
            work.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, interrupt)

    async def _final_phase(
        self, controller: Controller, clock: MonotonicClock, record: Record
    ) -> None:
        """Let what is open end, let what was delayed happen, then read everything."""
        self._progress.step("final reads")
        wait_s = 2 * self.spec.op_timeout_s + 1
        for name in await controller.drain(wait_s):
            record.note(
                Note(
                    time_ns=clock.now_ns(),
                    kind="problem",
                    worker=name,
                    why=f"worker {name} has not answered {wait_s:g} s after all was healed: "
                    f"its client does not keep to the op timeout of {self.spec.op_timeout_s:g} s",
                )
            )
        await asyncio.sleep(self.spec.op_timeout_s)
        record.mark(clock.now_ns(), "final")
        until_ns = clock.now_ns() + int(FINAL_S * 1e9)
        await controller.run(self._generators(self._workload.final(self.spec)), until_ns)
        await controller.drain(wait_s)

    def _generators(self, generators: Any) -> dict[str, Generator]:
        return dict(zip(self.spec.worker_names(), generators, strict=True))

    async def _save_store_log(self) -> None:
        store = self._parts.store
        if isinstance(store, StoreLog):
            log = await asyncio.to_thread(store.store_log, self._servers.store_cluster)
            self.folder.write_store_log(log)

    def _save_facts(self) -> None:
        """Record what runs: versions, kernel, Python; `run.yaml` then repeats the run."""
        from harness.runfile import to_yaml

        facts = {
            "vanwinkle": __version__,
            "python": platform.python_version(),
            "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
            **self._parts.versions(),
        }
        _, recorded = self.folder.spec()
        recorded |= {"facts": facts, "fence": self._parts.fence}
        self.folder.write("run.yaml", to_yaml(self.spec, recorded).encode())
