"""What an engine and its machine look like, and what of it is new since an earlier look.

Other test processes use the engine at the same time, and label what they make, as all runs do.  So
what is new is tolerated when it bears the label of somebody else, hangs on something that does, or
is a step of an image's build.  Everything else counts, labelled by us or not.
"""

import re
import subprocess
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.docker.engine import RUN_LABEL
from harness.docker.project import PROJECT_LABEL, composed_name

_STEP = re.compile(r"(sha256:)?[0-9a-f]{12,64}$")
_LISTS = (["nft", "-s", "list", "ruleset"], ["iptables-save"], ["ip6tables-save"])


@dataclass(frozen=True)
class State:
    """Each thing by its name, with its labels where it has any, and what it hangs on."""

    containers: Mapping[str, Any]
    networks: Mapping[str, Any]
    volumes: Mapping[str, Any]
    rules: frozenset[str]
    interfaces: frozenset[str]


def state(api: Any) -> State:
    """Look."""
    return State(
        {one["Names"][0].strip("/"): one for one in api.containers(all=True)},
        {f"{one['Name']} {one['Id']}": one for one in api.networks()},
        {one["Name"]: one for one in api.volumes()["Volumes"] or ()},
        frozenset(line for argv in _LISTS for line in _said(argv)),
        frozenset(path.name for path in Path("/sys/class/net").iterdir()),
    )


def _said(argv: list[str]) -> Iterable[str]:
    """Return what a program prints; nothing where it is missing, or may not look."""
    try:
        done = subprocess.run(argv, capture_output=True, check=False, text=True)
    except FileNotFoundError:
        return []
    lines = (re.sub(r"\[\d+:\d+\]", "", line).strip() for line in done.stdout.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def new_since(
    before: State, now: State, run: str, held: Collection[str] = frozenset()
) -> list[str]:
    """Return what is new and nobody else's, when `run` is ours.

    `held`: networks that the engine does not give up, with the volumes that say whose they are.
    """

    def others(labels: Mapping[str, str] | None) -> bool:
        found = labels or {}
        if PROJECT_LABEL in found:
            return found[PROJECT_LABEL] != composed_name(run)
        return found.get(RUN_LABEL, run) != run

    theirs = [one for one in now.networks.values() if others(one["Labels"]) or one["Name"] in held]
    bridges = [f"br-{one['Id'][:12]}" for one in theirs]
    used = {
        mount.get("Name")
        for one in now.containers.values()
        if others(one["Labels"])
        for mount in one["Mounts"]
    }
    left = [
        *(
            f"container {name}"
            for name in now.containers.keys() - before.containers.keys()
            if not others(now.containers[name]["Labels"]) and not _is_step(now.containers[name])
        ),
        *(
            f"network {name}"
            for name in now.networks.keys() - before.networks.keys()
            if now.networks[name] not in theirs
        ),
        *(
            f"volume {name}"
            for name in now.volumes.keys() - before.volumes.keys()
            if not others(now.volumes[name]["Labels"]) and name not in used and name not in held
        ),
        *(
            f"rule {line}"
            for line in now.rules - before.rules
            if not any(bridge in line for bridge in bridges)
        ),
        *(
            f"interface {name}"
            for name in now.interfaces - before.interfaces
            if name not in bridges and _bridge_of(name) not in (*bridges, "docker0")
        ),
    ]
    return sorted(left)


def _is_step(container: Mapping[str, Any]) -> bool:
    """Whether it is a step of a build: from no image that has a name, and with no label."""
    return not container["Labels"] and bool(_STEP.match(container["Image"]))


def _bridge_of(interface: str) -> str:
    master = Path("/sys/class/net", interface, "master")
    return master.resolve().name if master.exists() else ""
