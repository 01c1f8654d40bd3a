"""Plug-ins for tests of run files and of the command line: nothing in them does anything.

`etcd` plays both parts and knows its leader, `valkey` is a store only, `lonely` a lock service with
no server process; `fencing` and `pause` take the options of the real ones.
"""

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from harness import plugins
from harness.evidence import Evidence
from harness.generator import Generator
from harness.node import Node
from harness.spec import RunSpec
from harness.target import Cluster, LockClient, Server, StoreClient
from harness.units import parse_seconds
from harness.verdict import Verdict
from harness.window import Proof


class Etcd:
    """A cluster."""

    name = "etcd"
    fence = "none"

    class Options(BaseModel):
        """Options."""

        model_config = ConfigDict(extra="forbid")

        nodes: int = Field(3, ge=1, le=9, description="members")
        guarded: bool = False

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)

    def servers(self) -> Sequence[Server]:
        """The members."""
        return [Server(f"etcd{i + 1}", ["etcd"], 2379) for i in range(self.options.nodes)]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Not used."""
        raise NotImplementedError

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Not used."""
        raise NotImplementedError

    def leader(self, cluster: Cluster) -> str | None:
        """Not used."""
        return None


class Valkey:
    """One server."""

    name = "valkey"
    fence = "none"

    def __init__(self, *, fenced: bool = False) -> None:
        self.fence = "checked" if fenced else "none"

    def servers(self) -> Sequence[Server]:
        """The server."""
        return [Server("valkey1", ["valkey"], 6379, role="store")]

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Not used."""
        raise NotImplementedError


class Lonely:
    """A lock service that is somewhere else."""

    name = "lonely"

    def servers(self) -> Sequence[Server]:
        """None."""
        return []

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Not used."""
        raise NotImplementedError


class Fencing:
    """The workload."""

    name = "fencing"

    class Options(BaseModel):
        """Options."""

        keys: int = Field(1, ge=1, le=100, description="how many")
        think: float = 0.02
        check: bool = True

        @field_validator("think", mode="before")
        @classmethod
        def _think(cls, value: object) -> object:
            return parse_seconds(value) if isinstance(value, str) else value

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)

    def generators(self, spec: RunSpec) -> Sequence[Generator]:
        """None."""
        return []

    def final(self, spec: RunSpec) -> Sequence[Generator]:
        """None."""
        return []

    def check(self, evidence: Evidence) -> Verdict:
        """Judge everything good."""
        return Verdict(verdict="pass", headline="all is well")


class Pause:
    """The fault."""

    name = "pause"

    def __init__(self, *, depth: int = 1) -> None:
        self.depth = depth

    def available(self, node: Node) -> str | None:
        """Always."""
        return None

    def undo(self, node: Node) -> dict[str, Any]:
        """Nothing."""
        return {}

    async def start(self, nodes: Sequence[Node]) -> None:
        """Nothing."""

    async def in_force(self, nodes: Sequence[Node]) -> Proof:
        """Nothing."""
        return Proof(holds=None, text="")

    async def stop(self, nodes: Sequence[Node]) -> None:
        """Nothing."""

    async def gone(self, nodes: Sequence[Node]) -> Proof:
        """Nothing."""
        return Proof(holds=None, text="")


_NAMES = {
    "targets": {"etcd": "Etcd", "valkey": "Valkey", "lonely": "Lonely"},
    "faults": {"pause": "Pause"},
    "workloads": {"fencing": "Fencing"},
    "reports": {},
}


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the names stand for these plug-ins."""

    def entries(kind: str) -> dict[str, EntryPoint]:
        return {
            name: EntryPoint(name, f"{__name__}:{attribute}", f"vanwinkle.{kind}")
            for name, attribute in _NAMES[kind].items()
        }

    monkeypatch.setattr(plugins, "entries", entries)
