"""Run files: YAML and flags to a `RunSpec`, and back.

Whatever is wrong is said at once, each mistake with file, line and column, what was found and what
is allowed.  Flags override the file key by key, and go through the same checks.  What a run writes
to its own `run.yaml` reads back as the same run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from harness import runcheck
from harness.brackets import parse_fault
from harness.errors import UsageError
from harness.mistakes import Mistake, Path, dotted, from_pydantic, show
from harness.runmodel import KEYS, RANDOM, RANDOM_COUNT, Draft, Fault, Named, RunFile, unfold
from harness.spec import FaultSpec, RunSpec, TargetSpec
from harness.units import Duration, parse_duration
from harness.yaml_places import Document, read_yaml, report

Flags = Mapping[Path, Any]
"""Values given on the command line by their path in a run file: `("ttl",)` or
`("workload", "options", "keys")`."""


def read_file(path: FilePath, flags: Flags | None = None, *, default_seed: int = 0) -> RunSpec:
    """Read a run file.  Raises UsageError with every mistake."""
    return read(read_bytes(path), source=str(path), flags=flags, default_seed=default_seed)


def read_bytes(path: FilePath) -> bytes:
    """Return what a file holds.  Raises UsageError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def read(
    text: str | bytes,
    *,
    source: str = "run.yaml",
    flags: Flags | None = None,
    default_seed: int = 0,
) -> RunSpec:
    """Read the text of a run file.  Raises UsageError with every mistake."""
    document = read_yaml(text, source)
    if document.value is None and not document.mistakes:
        raise UsageError(f"{source}:1:1: found nothing; allowed: at least `lock:` and `store:`")
    given = _Given(document, flags or {})
    return given.spec(document.value, default_seed)


def read_recorded(path: FilePath) -> tuple[RunSpec, dict[str, Any]]:
    """Return the run of a run folder's `run.yaml`, and what was recorded with it.

    Its names are not looked up: a run is judged where its targets do not exist.  Raises UsageError.
    """
    document = read_yaml(read_bytes(path), str(path))
    draft, _, mistakes = _shaped(document.value)
    if lines := report(document, mistakes):
        raise UsageError("\n".join(lines))
    recorded = draft.recorded if isinstance(draft.recorded, dict) else {}
    return _spec(draft, 0), recorded


def from_flags(flags: Flags, *, default_seed: int = 0) -> RunSpec:
    """Make a run of flags alone.  Raises UsageError with every mistake."""
    return _Given(None, flags).spec({}, default_seed)


def from_values(values: Mapping[str, Any], *, default_seed: int = 0) -> RunSpec:
    """Make a run of plain data with the keys of a run file.  Raises UsageError."""
    return _Given(None, {}).spec(dict(values), default_seed)


def run_schema() -> dict[str, Any]:
    """Return the JSON schema of run files."""
    return RunFile.model_json_schema()


@dataclass(frozen=True)
class _Given:
    """Where a run comes from: a document or none, and flags."""

    document: Document | None
    flags: Flags = field(default_factory=dict)

    def spec(self, value: Any, default_seed: int) -> RunSpec:
        """Return the run.  Raises UsageError."""
        if isinstance(value, Mapping):
            value = overlay(value, self.flags)
        spec, mistakes = examine(value, default_seed=default_seed)
        lines = report(self.document, mistakes, self._flag_line)
        if lines:
            raise UsageError("\n".join(lines))
        assert spec is not None
        return spec

    def _flag_line(self, mistake: Mistake) -> str | None:
        path = mistake.path
        for length in range(len(path), 0, -1):
            if path[:length] in self.flags:
                name, below = flag_name(path[:length]), path[length:]
                if below and isinstance(below[0], int):  # a flag that may be given many times
                    name, below = f"{name} number {below[0] + 1}", below[1:]
                rest = f"{dotted(below)}: " if below else ""
                return f"{name}: {rest}{mistake.text}"
        if self.document is None and path in (("lock",), ("store",)):
            return f"{flag_name(path)}: {mistake.text} (`winkle list targets` names them)"
        return None


def flag_name(path: Path) -> str:
    """Return the flag that sets the value at `path`."""
    return "--fault" if path[0] == "faults" else f"--{str(path[-1]).replace('_', '-')}"


def overlay(values: Mapping[str, Any], flags: Flags) -> dict[str, Any]:
    """Return `values` with the flags put over them."""
    merged = dict(values)
    for path, value in flags.items():
        if len(path) == 1:
            merged[str(path[0])] = value
    for path, value in flags.items():
        if len(path) == 3:
            _, _, option = path
            merged["workload"] = _with_option(merged.get("workload"), str(option), value)
    return merged


def _with_option(workload: object, option: str, value: Any) -> object:
    try:
        named = unfold("fencing" if workload is None else workload)
    except ValueError:
        return workload  # it is wrong in itself, and that is what must be said
    options = named.get("options", {}) if isinstance(named, Mapping) else None
    if not isinstance(named, Mapping) or not isinstance(options, Mapping):
        return workload
    return {**named, "options": {**options, option: value}}


def examine(value: Any, *, default_seed: int = 0) -> tuple[RunSpec | None, list[Mistake]]:
    """Return the run that plain data describes, or None and every mistake in it."""
    draft, entries, mistakes = _shaped(value)
    wrong = frozenset(str(mistake.path[0]) for mistake in mistakes if mistake.path)
    if isinstance(value, Mapping):
        mistakes = [*mistakes, *runcheck.check(draft, entries, wrong)]
    if mistakes:
        return None, mistakes
    return _spec(draft, default_seed), []


def _shaped(value: Any) -> tuple[Draft, list[runcheck.Entry], list[Mistake]]:
    """Return what has the shape of a run file, and what has not."""
    if not isinstance(value, Mapping):
        text = f"found {show(value)}; allowed: a mapping, `lock:`, `store:` and so on"
        return Draft.model_validate({}), [], [Mistake((), text)]
    mistakes: list[Mistake] = []
    try:
        RunFile.model_validate(value)
    except ValidationError as error:
        mistakes = from_pydantic(error, _known_keys)
    return (*_survivors(value, mistakes), mistakes)


def _known_keys(path: Path) -> Sequence[str]:
    return tuple(Named.model_fields) if path else KEYS


def _survivors(
    value: Mapping[str, Any], mistakes: Sequence[Mistake]
) -> tuple[Draft, list[runcheck.Entry]]:
    """Return what is right in a wrong file, so that the rest of it can be checked as well."""
    wrong = {mistake.path[0] for mistake in mistakes if mistake.path}
    kept = {key: value[key] for key in KEYS if key in value and key not in wrong}
    for key in ("lock", "store", "workload"):
        if key in value and (part := _pruned(value[key], _below(mistakes, key))) is not None:
            kept[key] = part
    listed = value.get("faults", [])
    entries: list[tuple[int, bool]] = []
    if isinstance(listed, list | tuple):
        kept["faults"] = []
        for i, fault in enumerate(listed):
            bad = _below(mistakes, "faults", i)
            if (part := _pruned(fault, bad)) is not None:
                kept["faults"].append(part)
                entries.append((i, not bad))
    draft = Draft.model_validate(kept)
    return draft, [
        runcheck.Entry(i, fault, whole)
        for (i, whole), fault in zip(entries, draft.faults, strict=True)
    ]


def _below(mistakes: Sequence[Mistake], *prefix: str | int) -> list[Path]:
    return [m.path[len(prefix) :] for m in mistakes if m.path[: len(prefix)] == prefix]


def _pruned(value: Any, bad: Sequence[Path]) -> Any:
    """Return a part without its wrong entries, None when what it is about is wrong itself."""
    if not bad:
        return value
    keys = {path[0] for path in bad if path}
    if () in bad or keys & {"name", "kind"}:
        return None
    entries = parse_fault(value) if isinstance(value, str) else value
    return {key: entry for key, entry in entries.items() if key not in keys}


def _spec(draft: Draft, default_seed: int) -> RunSpec:
    assert draft.lock is not None
    assert draft.store is not None
    lock, store = draft.lock, draft.store
    one = lock.name == store.name
    both = runcheck.merged(lock, store)
    return RunSpec(
        lock=TargetSpec(lock.name, both if one else lock.options),
        store=TargetSpec(store.name, both if one else store.options),
        workload=draft.workload.name,
        options=draft.workload.options,
        faults=tuple(_fault(fault) for fault in draft.faults),
        backend=draft.backend if draft.compose is None else "docker",
        inventory=draft.inventory,
        compose=draft.compose,
        servers=draft.servers,
        workers=draft.workers,
        readers=draft.readers,
        ttl_s=draft.ttl,
        time_s=draft.time,
        op_timeout_s=draft.op_timeout,
        stop_on_failure=draft.stop_on_failure,
        seed=default_seed if draft.seed is None else draft.seed,
    )


def _fault(fault: Fault) -> FaultSpec:
    at = fault.at or runcheck.DEFAULT_PHASE
    at_random = at == RANDOM
    return FaultSpec(
        kind=fault.kind,
        who=fault.who,
        length=fault.length,
        at=at if isinstance(at, Duration) else None,
        phase=None if at_random or isinstance(at, Duration) else at,
        random_count=(fault.count or RANDOM_COUNT) if at_random else None,
        after=fault.after,
        every=fault.every,
        count=None if at_random else fault.count,
        options=dict(fault.model_extra or {}),
    )


def to_yaml(spec: RunSpec, recorded: Mapping[str, Any] | None = None) -> str:
    """Return a run file that reads back as `spec`; `recorded` is what the run adds for people."""
    import yaml

    values: dict[str, Any] = {
        "lock": _named(spec.lock.name, spec.lock.options),
        "store": _named(spec.store.name, spec.store.options),
        "workload": _named(spec.workload, spec.options),
        "faults": [_fault_values(fault) for fault in spec.faults],
        "backend": spec.backend,
        "workers": spec.workers,
        "readers": spec.readers,
        "ttl": _exact(Duration(spec.ttl_s)),
        "time": _exact(Duration(spec.time_s)),
        "op_timeout": _exact(Duration(spec.op_timeout_s)),
        "seed": spec.seed,
    }
    for key in ("inventory", "compose", "servers"):
        if getattr(spec, key) != getattr(RunSpec, key):
            values[key] = getattr(spec, key)
    if spec.stop_on_failure:
        values["stop_on_failure"] = True
    if recorded is not None:
        values["recorded"] = dict(recorded)
    # ASCII only: PyYAML writes some line breaks of Unicode bare, and reads them back as spaces.
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=False)


def _named(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "options": dict(options)}


def _fault_values(fault: FaultSpec) -> dict[str, Any]:
    at = RANDOM if fault.random_count else fault.phase or _exact(fault.at or Duration(0.0))
    values: dict[str, Any] = {"kind": fault.kind, "who": fault.who, "at": at}
    values["for"] = _exact(fault.length)
    if fault.after is not None:
        values["after"] = _exact(fault.after)
    if fault.every is not None:
        values["every"] = _exact(fault.every)
    if (count := fault.random_count or fault.count) is not None:
        values["count"] = count
    return {**values, **fault.options}


def _exact(duration: Duration) -> str:
    """Return a duration as text that reads back as the same number, not as one near to it."""
    short = str(duration)
    try:
        if parse_duration(short) == duration:
            return short
    except ValueError:
        pass  # `1e+06s`: a short form that is no number of a run file
    unit = "leases" if duration.in_leases else "s"
    return f"{Decimal(repr(duration.amount)).normalize():f}{unit}"
