"""A node: a holder, and the containers that join its network and its process space.

A server that is killed leaves address, rules and data behind with the holder, as a machine would:
who connects is refused, and it starts again in 0.1 s.  Processes are looked at and signalled by the
holder, from inside their own process space, which needs no right on the engine's machine; a pid is
one of that space.
"""

import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from harness.docker.clocks import HolderClocks
from harness.docker.data import HeldFolder
from harness.docker.engine import EngineError, engine_does
from harness.docker.holder import Holder
from harness.docker.images import inside, program_image
from harness.docker.process import ContainerProcess
from harness.docker.project import Project
from harness.docker.stopping import Stopping
from harness.node import ProcessId

PYTHON = "python"


@dataclass(frozen=True)
class Command:
    """What a container runs."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str | None


class DockerNode(Stopping, HeldFolder):
    """A node of a run; see `harness.node`."""

    def __init__(
        self,
        project: Project,
        holder: Holder,
        *,
        binds: Sequence[str] = (),
        files: bytes | None = None,
        image: str | None = None,
    ) -> None:
        """`binds` are more volumes, `files` a tar archive, for every container that joins.

        `image`, of the user's own, is what a command here is given to as it stands.
        """
        super().__init__(project.api, holder, lambda: tuple(self._living))
        self.name = holder.name
        self.address = holder.address
        self.data = holder.root / "data"
        self.clocks = HolderClocks(holder)
        self._project = project
        self._binds = [*holder.binds, *binds]
        self._files = files
        self._image = image
        self._names = count(1)
        self._ready: tuple[Command, str] | None = None
        self._living: set[str] = set()
        self._changing = threading.Lock()
        self._fillers = set()

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        pipes: bool = False,
        cwd: Path | None = None,
    ) -> ContainerProcess:
        """Start a process here, as a container of its own, in threads.  Raises OSError."""
        environment = tuple(sorted((env or {}).items()))
        command = Command(tuple(argv), environment, None if cwd is None else str(cwd))
        return ContainerProcess(
            self._project,
            lambda: self._container(command, pipes=pipes),
            self.kill,
            log,
            pipes=pipes,
            began=self._living.add,
            ended=self._is_over,
        )

    def _is_over(self, container: str) -> None:
        self._living.discard(container)
        self.freezer.forget(container)

    def _container(self, command: Command, *, pipes: bool) -> str:
        """Return a container for a command: the last one, if it ran the same, else a new one."""
        with self._changing:
            last, self._ready = self._ready, None
        if last is not None and last[0] == command:
            container = last[1]
        else:
            container = self._make(command, pipes=pipes)
        with self._changing:
            self._ready = (command, container)
        return container

    def _make(self, command: Command, *, pipes: bool) -> str:
        api, project = self._project.api, self._project
        entrypoint, argv, image = self._argv(command.argv)
        join = f"container:{self.holder.container}"
        # A relative path to a file of the user's own means the same there.
        here = None if self._files is None else str(Path.cwd())
        host = api.create_host_config(binds=self._binds, network_mode=join, pid_mode=join)
        with engine_does(f"no container can be made on {self.name}"):
            made = api.create_container(
                image,
                argv,
                entrypoint=entrypoint,
                name=project.name(self.name, str(next(self._names))),
                environment={key: inside(text) for key, text in command.env},
                working_dir=command.cwd or here,
                labels=project.labels,
                stdin_open=pipes,
                host_config=host,
            )
            if self._files is not None:
                api.put_archive(made["Id"], "/", self._files)
        return str(made["Id"])

    def _argv(self, argv: Sequence[str]) -> tuple[list[str] | None, list[str], str]:
        """Return a command as it is right in a container, and the image that can run it.

        The program comes apart, as what replaces the image's own entrypoint, or is None.
        """
        import sys

        if self._image is not None:
            return None, list(argv), self._image
        program, image = argv[0], self._project.image
        words = [inside(word) for word in argv]
        if program == sys.executable:
            words[0] = PYTHON
        elif Path(program).is_absolute() and words[0] == program:
            path = Path(program)
            if not path.is_file():
                raise EngineError(f"there is no program {program}")
            image = program_image(self._project.api, image, path)
        return words[:1], words[1:], image

    # ---------------------------------------------------------------- processes

    def processes(self) -> list[ProcessId]:
        """All processes that live here now, by their pids in here."""
        return [ProcessId(pid, start) for pid, start in self.peek("processes", [])]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process that lives here."""
        self.holder.order("signal", int(number))

    def kill(self, *, kindly: bool = False) -> None:
        """Order every process to end; what is frozen and killed dies at its thaw."""
        self.signal(signal.SIGTERM if kindly else signal.SIGKILL)
        if not kindly:
            self.freezer.thaw()
