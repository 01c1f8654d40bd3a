"""What belongs to one run in the engine, by name and by label."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.docker.engine import OWNER_LABEL, RUN_LABEL, engine_does, is_here, owner

DISK_BYTES = 1 << 30
SILENCE_S = 5.0  # a harness that is silent for longer is taken for stuck
PROJECT_LABEL = "com.docker.compose.project"
_LATE_S = 10.0  # of each thread; the engine has answered by then, or never will


def run_name(run: str) -> str:
    """Return the name of a run in the engine, with which the names of all that it has begin."""
    return f"winkle-{run}"


def composed_name(run: str) -> str:
    """Return the name of the compose project of a run."""
    return f"winkle{run}"


def owner_volume(run: str) -> str:
    """Return the name of the volume that says whose compose project it is."""
    return f"{run_name(run)}-owner"


def labels(run: str) -> dict[str, str]:
    """Return the labels of everything that a run of this process makes."""
    return {RUN_LABEL: run, OWNER_LABEL: owner()}


class Project:
    """The network, the image and the names of one run."""

    def __init__(self, api: Any, run: str, image: str, network: str | None = None) -> None:
        """Use a network that is there, or make one, which nothing leads out of.

        Raises EngineError.
        """
        self.api = api
        self.run = run
        self.image = image
        self.labels = labels(run)
        self._threads: list[threading.Thread] = []
        self.network = network or run_name(run)
        # Kernels from 6.15 on have it; of an engine on another machine it is not known.
        setting = Path("/proc/sys/net/ipv4/tcp_rto_max_ms")
        self.is_here = is_here(api)
        self.knows_rto_max = self.is_here and setting.exists()
        if network is not None:
            return
        with engine_does("the run's network cannot be made"):
            api.create_network(
                self.network,
                driver="bridge",
                internal=True,
                labels=self.labels,
                check_duplicate=True,
            )

    def go(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Let work that talks to the engine go on in a thread of its own."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def close(self) -> None:
        """Hang up, once no work talks to the engine any more: a call after that leaks a socket."""
        for thread in self._threads:
            thread.join(_LATE_S)
        self.api.close()

    def name(self, *parts: str) -> str:
        """Return the name of a container or volume of this run."""
        return "-".join((run_name(self.run), *parts))

    def volume(self, node: str) -> str:
        """Make the data volume of a node, in memory and of limited size; return its name."""
        name = self.name(node, "data")
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={DISK_BYTES},mode=0755"}
        with engine_does(f"the data volume of {node} cannot be made"):
            self.api.create_volume(name, driver_opts=options, labels=self.labels)
        return name
