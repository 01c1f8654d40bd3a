"""The shape of a run file, as pydantic models at the edge; the JSON schema is made from them.

Whether the names in it exist, and their options are right, is `harness.runcheck`'s business.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from harness.backend import BACKENDS
from harness.brackets import parse_fault, parse_target
from harness.mistakes import nearest, show
from harness.note import PHASES
from harness.units import Duration, parse_duration, parse_seconds

RANDOM = "random"
RANDOM_COUNT = 3
SEED_MAX = 2**63 - 1
SECONDS_MAX = 24 * 3600.0
_UNITS = r"^\s*\d+(\.\d+)?\s*(us|ms|s|m|h)\s*$"
_LEASES = r"^\s*\d+(\.\d+)?\s*(us|ms|s|m|h|leases?)\s*$"


def _seconds(value: object) -> float:
    seconds = parse_seconds(value)
    if not 1e-3 <= seconds <= SECONDS_MAX:
        raise ValueError(f"found {show(value)}; allowed: 1ms to {SECONDS_MAX / 3600:g}h")
    return seconds


def _length(value: object) -> Duration:
    duration = parse_duration(value)
    if duration.amount <= 0:
        raise ValueError(f"found {show(value)}; allowed: more than 0s")
    return duration


def _when(value: object) -> Duration | str:
    if value in (*PHASES, RANDOM):
        return str(value)
    try:
        return parse_duration(value)
    except ValueError:
        words = (*PHASES, RANDOM)
        hint = nearest(value, words) if isinstance(value, str) else ""
        raise ValueError(
            f"found {show(value)}; {hint}allowed: a phase ({', '.join(PHASES)}), {RANDOM}, or a"
            " time of the run like 3s or 1.5leases"
        ) from None


def _backend(value: object) -> str:
    if value not in BACKENDS:
        raise ValueError(f"found {show(value)}; allowed: {', '.join(BACKENDS)}")
    return str(value)


Seconds = Annotated[
    float,
    PlainValidator(_seconds),
    WithJsonSchema({"type": "string", "pattern": _UNITS, "examples": ["2s", "500ms"]}),
]
Length = Annotated[
    Duration,
    PlainValidator(_length),
    WithJsonSchema({"type": "string", "pattern": _LEASES, "examples": ["4s", "2.5leases"]}),
]
When = Annotated[
    Duration | str,
    PlainValidator(_when),
    WithJsonSchema(
        {"anyOf": [{"enum": [*PHASES, RANDOM]}, {"type": "string", "pattern": _LEASES}]}
    ),
]
Count = Annotated[int, Field(strict=True, ge=1, le=1000)]


class _Short(BaseModel):
    """A mapping that may also be written short, as one text."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(core_schema)]}


Text = Annotated[str, Field(strict=True, min_length=1)]


class Named(_Short):
    """A target or a workload with its options: `etcd`, `etcd[nodes=3]`, or `name` and `options`."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, strict=True)
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _unfold(cls, value: object) -> object:
        return unfold(value)


def unfold(value: object) -> object:
    """Return a target or workload in its long form.  Raises ValueError for what is neither form."""
    if isinstance(value, str):
        return parse_target(value)
    if not isinstance(value, Mapping):
        raise ValueError(  # noqa: TRY004 - what pydantic collects with the other mistakes
            f"found {show(value)}; allowed: a name like etcd, a name with options like"
            " etcd[nodes=3], or a mapping with name and options"
        )
    return value


class Fault(_Short):
    """One fault; keys that are not named here are options of the kind."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(
        min_length=1, strict=True, description="what happens; see `winkle list faults`"
    )
    who: str = Field("holder", strict=True, description="a role, or the name of a server or worker")
    at: When | None = Field(
        None, description="what starts it; before-write where a worker is meant"
    )
    length: Length = Field(
        Duration(2.0, in_leases=True),
        alias="for",
        description="how long it stays",
        json_schema_extra={"default": "2leases"},
    )
    after: Length | None = Field(None, description="a phase counts only from this time on")
    every: Length | None = Field(None, description="again, so long after the end of the one before")
    count: Count | None = Field(None, description="how often at most")

    @model_validator(mode="before")
    @classmethod
    def _unfold(cls, value: object) -> object:
        if isinstance(value, str):
            return parse_fault(value)
        if not isinstance(value, Mapping):
            raise ValueError(  # noqa: TRY004 - what pydantic collects with the other mistakes
                f"found {show(value)}; allowed: a mapping with a kind, or one text like"
                " pause:who=holder,at=before-write,for=2.5leases"
            )
        return value


class Draft(BaseModel):
    """A run file of which parts may be missing, because they were wrong."""

    model_config = ConfigDict(extra="forbid", title="vanwinkle run file")

    lock: Named | None = Field(None, description="the lock service under test")
    store: Named | None = Field(None, description="the resource that the lock protects")
    workload: Named = Field(
        default_factory=lambda: Named(name="fencing"),
        description="what the workers do, and how the history is judged",
    )
    faults: list[Fault] = Field(default_factory=list, description="the schedule")
    backend: Annotated[str, BeforeValidator(_backend), WithJsonSchema({"enum": list(BACKENDS)})] = (
        Field("local", description="where the processes run")
    )
    workers: int = Field(3, strict=True, ge=1, le=50, description="processes that want the lock")
    readers: int = Field(1, strict=True, ge=0, le=50, description="processes that only read")
    ttl: Seconds = Field(
        2.0, json_schema_extra={"default": "2s"}, description="the lease that the workers ask for"
    )
    time: Seconds = Field(
        15.0, json_schema_extra={"default": "15s"}, description="how long the workers work"
    )
    op_timeout: Seconds = Field(
        1.0,
        json_schema_extra={"default": "1s"},
        description="after this an operation's outcome is unknown",
    )
    stop_on_failure: bool = Field(
        default=False, strict=True, description="end at the first thing that the monitors see"
    )
    inventory: Text | None = Field(None, description="the file with the hosts of backend ssh")
    compose: Text | None = Field(
        None, description="for backend docker: the compose file of a system of your own"
    )
    servers: Text = Field("*", description="which services of it are servers, like etcd*")
    seed: int | None = Field(None, strict=True, ge=0, le=SEED_MAX, description="random by default")
    recorded: Any = Field(None, description="what a run adds to its own run.yaml; ignored")


class RunFile(Draft):
    """A whole run file."""

    lock: Named = Field(description="the lock service under test")
    store: Named = Field(description="the resource that the lock protects")


KEYS = tuple(RunFile.model_fields)
