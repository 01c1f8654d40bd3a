"""A holder that is attached to a container which is not ours.

It joins the network and the process space of that container.  When the container ends, the kernel
ends the sidecar with the process space, and the network with its rules is gone as well.
"""

from typing import Any

from harness.docker.engine import engine_does
from harness.docker.holder import ANSWER_S, RIGHTS, Holder
from harness.docker.project import Project

# What is of no consequence on a node whose network is gone: nothing gets in or out there.
_VAIN = frozenset(
    {
        *("cut", "stopped_packets", "shape", "forget"),
        *("send", "open", "listen", "burst", "arrived"),
    }
)


class Sidecar(Holder):
    """The holder that is attached to a container.  Can be attached again when it was lost."""

    def __init__(self, project: Project, name: str, server: str) -> None:
        """Attach it to the container `server`.  Raises EngineError."""
        self.server = server
        self._project = project
        self._lives = 0
        super().__init__(project, name, disk=False)

    def _create(self, project: Project) -> str:
        self._lives += 1
        join = f"container:{self.server}"
        host = project.api.create_host_config(
            cap_drop=["ALL"], cap_add=RIGHTS, network_mode=join, pid_mode=join
        )
        with engine_does(f"no sidecar can be made for {self.name}"):
            made = project.api.create_container(
                project.image,
                ["python", "-P", "-m", "harness.docker.agent"],
                name=project.name(self.name, f"sidecar{self._lives}", "holder"),
                labels=project.labels,
                stdin_open=True,
                host_config=host,
            )
        return str(made["Id"])

    def _addressed(self) -> str:
        """Return the container to which the address belongs."""
        return self.server

    def attach(self) -> None:
        """Attach another one in the place of one that is gone.  Raises EngineError."""
        self._reader.join()
        self._streams.close()
        self._open(self._project)

    def await_end(self) -> None:
        """Wait until it is gone."""
        self._reader.join()

    async def request(self, call: str, *arguments: Any, bound_s: float = ANSWER_S) -> Any:
        """Give an order and wait for the answer while others go on.  Raises OSError."""
        try:
            return await super().request(call, *arguments, bound_s=bound_s)
        except OSError:
            if self.gone and call in _VAIN:
                return None
            raise
