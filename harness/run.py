"""The life of one run, inside its sandbox.

::

    nodes → servers → workers → main phase with faults → heal → final phase → save → judge → report
                                                                                   → tear down

Judging comes before tear-down, and the sandbox's end is the tear-down: nothing that fails there
can change a verdict that is already on disk.  SIGINT and SIGTERM end the main phase early; the
rest of the life goes on as always.
"""

import asyncio
import gc
import os
import platform
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from harness import adversary, assemble
from harness._version import __version__
from harness.backend import Factual, Watchful, backend
from harness.bounded import call
from harness.cast import Cast
from harness.clock import MonotonicClock
from harness.controller import Controller
from harness.errors import HarnessError, WinkleError
from harness.folder import Record, RunFolder, encode_note
from harness.generator import Generator
from harness.hire import Crew
from harness.history import HistoryWriter
from harness.ledger import Ledger, ledger_folder
from harness.monitor import Sighting
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
from harness.trick import Part
from harness.upkeep import Keeper
from harness.witness import ProgramWitness

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FINAL_READS_S = 5.0

LOG_S = 60.0


def main(run_dir: Path) -> int:
    """Run what `run.yaml` in the folder describes, judge it, and return the exit code."""
    from harness.judge import HARNESS_ERROR, exit_code, finish

    folder = RunFolder(run_dir)
    for number in SIGNALS[1:]:  # until the event loop takes over, each is like Ctrl-C
        signal.signal(number, signal.default_int_handler)
    try:
        spec, recorded = folder.spec()
        run = Run(folder, spec, quiet=bool(recorded.get("quiet")))
        asyncio.run(run.live())
    except (KeyboardInterrupt, asyncio.CancelledError):
        with HistoryWriter(folder.notes) as notes:
            notes.write(encode_note(Note(time_ns=0, kind="mark", why="interrupted")))
    except WinkleError as error:
        _keep(folder, str(error))
    except Exception as error:  # noqa: BLE001 - one line for a person, the rest in the log
        folder.log("harness").write_text(traceback.format_exc())
        _keep(folder, f"{type(error).__name__}: {error} (all of it: {folder.log('harness')})")
    for number in SIGNALS:  # nothing may come between a run and its verdict now
        signal.signal(number, signal.SIG_IGN)
    try:
        return exit_code(finish(folder))
    except OSError as error:
        sys.stderr.write(f"the verdict cannot be written: {error}\n")
        return HARNESS_ERROR


def _steady() -> None:
    """Let the collector of garbage no longer look at what stands now.

    It lives as long as the run, and to look through all of it stops the event loop for 30 ms and
    more: longer than a fault takes from its order to its proof.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _keep(folder: RunFolder, error: str) -> None:
    """Write down why the run failed; a full disk is one of the reasons to come here."""
    try:
        folder.write("error.txt", error.encode())
    except OSError:
        sys.stderr.write(f"{error}\n")


class Run:
    """One run: what was asked for, where it lives, and what is there to be told."""

    def __init__(self, folder: RunFolder, spec: RunSpec, *, quiet: bool) -> None:
        self.folder = folder
        self.spec = spec
        self._signals = 0
        self._work: asyncio.Task[None] | None = None
        self._controller: Controller | None = None
        self._progress = Progress(spec, quiet=quiet)
        self._parts = Parts(*assemble.targets(spec))
        self._workload = assemble.workload(spec)
        self._faults = assemble.faults(spec)
        self._workers = spec.worker_names() + adversary.wanted(self._faults)
        self._adversary = adversary.ExtraWorker(spec.ttl_s)
        names = [server.name for server in self._parts.servers] + self._workers
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise HarnessError(f"two nodes are named {', '.join(twice)}: rename a server")
        self._progress.step("network")
        self._lab = backend(spec.backend).build(names, spec, folder.path)
        self._parts = self._parts.seen_by(self._lab.distant)
        self._servers = Servers(self._parts, self._lab, folder)
        self._keeper = Keeper(self._lab.nodes, self._servers)
        self._witness = ProgramWitness(
            [
                (self._parts.lock, self._servers.lock_cluster),
                (self._parts.store, self._servers.store_cluster),
            ]
        )
        self._site = self._make_site()
        for fault, asked in zip(self._faults, spec.faults, strict=True):
            if reason := fault.available(replace(self._site, meant=self._may_hit(asked.who))):
                raise HarnessError(f"{fault.name} cannot work here: {reason}")

    def _may_hit(self, who: str) -> set[str]:
        """Return the nodes that `who` of a fault may turn out to be."""
        names, workers = self._parts.names(), self.spec.worker_names()
        return Cast(
            lock=self._parts.lock,
            store=self._parts.store,
            lock_servers=names["lock"],
            store_servers=names["store"],
            workers=[name for name in workers if name.startswith("w")],
            readers=[name for name in workers if name.startswith("r")],
            who=who,
        ).may_be_hit

    def _make_site(self) -> Site:
        """Gather what faults may touch."""
        names = self._parts.names()
        clusters = {"lock": self._servers.lock_cluster, "store": self._servers.store_cluster}
        self._proxies = self._lab.proxies(
            self.spec.worker_names(),
            {part: [clusters[part][name] for name in names[part]] for part in get_args(Part)},
        )
        return Site(
            nodes=self._lab.nodes,
            network=self._lab.network,
            links=self._lab.links,
            messages=self._proxies,
            lock_servers=names["lock"],
            store_servers=names["store"],
            workers=self.spec.worker_names(),
            ttl_s=self.spec.ttl_s,
            seed=self.spec.seed,
            upkeep=self._keeper,
            adversary=self._adversary if adversary.WORKER in self._workers else None,
            witness=self._witness,
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
        self._on_signals(record, clock)
        try:
            self._progress.step("servers")
            await self._servers.start()

            def report(why: str) -> None:
                record.note(Note(time_ns=clock.now_ns(), kind="problem", why=why))

            self._keeper.watch(report)
            if isinstance(self._lab, Watchful):
                self._lab.watch(report)
            self._save_facts()
            traps = Traps(lambda _: None)
            self._controller = controller = Controller(clock, record.history, record.note, traps)
            self._adversary.join(controller)
            if self._proxies is not None:
                await self._proxies.open()
            await self._hire(controller)
            nemesis = self._nemesis(controller, ledger, clock, record)
            await self._main_phase(controller, nemesis, clock, record)
            await self._final_phase(controller, clock, record)
            await self._save_store_log()
            record.mark(clock.now_ns(), "end")
        finally:
            self._progress.close()
            if self._controller is not None:
                self._controller.dismiss()
            record.close()
            ledger.close()

    async def _hire(self, controller: Controller) -> None:
        """Start the workers and wait until each is connected."""
        self._progress.step("workers")
        self._witness.seats = controller.seats
        self._keeper.crew = Crew(controller, self._lab, self.folder, self._hello)
        await self._keeper.crew.hire(self._workers)

    def _hello(self, name: str) -> Hello:
        spec = self.spec
        both = assemble.merged(spec) if spec.one_target else None
        servers = self._servers.records()
        return Hello(
            worker=name,
            lock={"name": spec.lock.name, "options": both or dict(spec.lock.options)},
            store={"name": spec.store.name, "options": both or dict(spec.store.options)},
            servers=self._proxies.addresses(name, servers) if self._proxies else servers,
            secrets=self._servers.secrets,
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
        _steady()
        record.mark(clock.now_ns(), "main")
        until_ns = clock.now_ns() + int(self.spec.time_s * 1e9)
        watch = asyncio.create_task(self._progress.watch(controller, nemesis, until_ns))
        work = asyncio.create_task(
            controller.run(self._generators(self._workload.generators(self.spec)), until_ns)
        )
        self._work = work
        if self.spec.stop_on_failure:
            controller.when_sighted = lambda seen: self._stop(seen, work, record)
        nemesis.begin()
        try:
            await asyncio.wait({work})
        finally:
            watch.cancel()
            self._progress.step("heal")
            await nemesis.end()
            await self._keeper.settle()
        for text in nemesis.leftovers:
            record.note(Note(time_ns=clock.now_ns(), kind="problem", why=f"{LEFTOVER}{text}"))
        if not work.cancelled():
            work.result()

    def _stop(self, seen: Sighting, work: "asyncio.Task[None]", record: Record) -> None:
        """End the main phase: there is something to show."""
        self._progress.step(f"{seen.name}: {seen.sentence}; the main phase ends here")
        record.mark(seen.time_ns, f"stopped by {seen.name}")
        work.cancel()

    def _on_signals(self, record: Record, clock: MonotonicClock) -> None:
        """The first signal ends the main phase, or the start; a second ends the whole life."""
        life = asyncio.current_task()
        assert life is not None

        def interrupt() -> None:
            self._signals += 1
            if self._signals == 1:
                record.mark(clock.now_ns(), "interrupted")
            if self._work is None or self._signals > 1:
                life.cancel()
            else:
                self._work.cancel()

        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, interrupt)

    async def _final_phase(
        self, controller: Controller, clock: MonotonicClock, record: Record
    ) -> None:
        """Let what is open end, let what was delayed happen, then see whether all goes on."""
        self._progress.step("final phase")
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
        until_ns = clock.now_ns() + int((self.spec.progress_s + FINAL_READS_S) * 1e9)
        await controller.run(self._generators(self._workload.final(self.spec)), until_ns)
        await controller.drain(wait_s)

    def _generators(self, generators: Any) -> dict[str, Generator]:
        return dict(zip(self.spec.worker_names(), generators, strict=True))

    async def _save_store_log(self) -> None:
        store = self._parts.store
        if isinstance(store, StoreLog):
            log = await call(store.store_log, self._servers.store_cluster, bound_s=LOG_S)
            self.folder.write_store_log(log)

    def _save_facts(self) -> None:
        """Record what runs: versions, kernel, Python; `run.yaml` then repeats the run."""
        from harness.runfile import to_yaml

        lab = self._lab if isinstance(self._lab, Factual) else None
        facts = {
            "vanwinkle": __version__,
            "python": platform.python_version(),
            "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
            **self._parts.versions(frozenset(lab.attached if lab else ())),
            **(lab.facts() if lab else {}),
        }
        _, recorded = self.folder.spec()
        servers = {part: list(names) for part, names in self._parts.names().items()}
        recorded |= {"facts": facts, "fence": self._parts.fence, "servers": servers}
        self.folder.write("run.yaml", to_yaml(self.spec, recorded).encode())
