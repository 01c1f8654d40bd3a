"""Suites: many runs, each with what it is expected to find.

A suite that only says `pass` proves little: the quick suite also holds runs that must fail, because
a harness that cannot see the bug it was built for must not be believed about its absence.  All runs
of a suite file are validated before the first one starts; a run that fails to run does not stop the
ones after it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from harness import anomalies as catalogue
from harness.errors import UsageError
from harness.mistakes import Mistake, from_pydantic, show, unknown
from harness.results import Results
from harness.runfile import Flags, examine, overlay, read_bytes
from harness.runmodel import KEYS, RunFile
from harness.spec import RunSpec
from harness.yaml_places import Document, read_yaml, report

Expected = Literal["pass", "fail", "unknown"]


def _anomaly(name: str) -> str:
    if name not in catalogue.catalogue():
        raise ValueError(unknown("anomaly", name, catalogue.catalogue()))
    return name


AnomalyName = Annotated[str, AfterValidator(_anomaly)]


class _Expectation(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, strict=True, description="what the table calls this run")
    expect: Expected = Field(description="the verdict that is right for this run")
    anomalies: list[AnomalyName] = Field(
        default_factory=list, description="findings that must be there"
    )
    refusals: int = Field(
        0, strict=True, ge=0, description="stale writes that must be refused, at least"
    )


class _Entry(_Expectation, RunFile):
    """One run of a suite: the keys of a run file, and what is expected."""


class _SuiteFile(BaseModel):
    model_config = ConfigDict(extra="forbid", title="vanwinkle suite")

    about: str = Field("", strict=True, description="one line for `winkle list suites`")
    runs: list[_Entry] = Field(min_length=1, description="the runs, in their order")


@dataclass(frozen=True)
class Planned:
    """One run of a suite, and what must come out of it."""

    name: str
    spec: RunSpec
    expect: Expected
    anomalies: tuple[str, ...] = ()
    refusals: int = 0


@dataclass(frozen=True)
class Row:
    """What came out of one run.

    `why_not` is empty when it is what was expected; `found` names the anomalies, each once.
    """

    planned: Planned
    exit_code: int
    verdict: str
    why_not: str
    first_finding_s: float | None = None
    folder: Path | None = None
    found: tuple[str, ...] = ()

    @property
    def as_expected(self) -> bool:
        """Whether verdict, findings and refusals are the expected ones."""
        return not self.why_not


def suite_schema() -> dict[str, Any]:
    """Return the JSON schema of suite files."""
    return _SuiteFile.model_json_schema()


def shipped_folder() -> Path:
    """Return the folder of the shipped suites: inside of a wheel, or beside us in a checkout."""
    here = Path(__file__).resolve().parent
    inside = here / "_suites"
    return inside if inside.is_dir() else here.parent / "suites"


def shipped() -> dict[str, str]:
    """Return the shipped suites by name, each with its line about itself."""
    found = {}
    for path in sorted(shipped_folder().glob("*.yaml")):
        value = read_yaml(read_bytes(path), str(path)).value
        found[path.stem] = str(value.get("about", "")) if isinstance(value, Mapping) else ""
    return found


def locate(name: str) -> Path:
    """Return the file of a suite by name or path.  Raises UsageError."""
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        return path
    known = [found.stem for found in shipped_folder().glob("*.yaml")]
    if name not in known:
        raise UsageError(f"{unknown('suite', name, known)}, or the path of a suite file")
    return shipped_folder() / f"{name}.yaml"


def read_suite(path: Path, *, flags: Flags | None = None, default_seed: int = 0) -> list[Planned]:
    """Read a suite file; flags override the keys of every run.

    Raises UsageError with every mistake of every run.
    """
    document = read_yaml(read_bytes(path), str(path))
    planned, mistakes = _plan(document, flags or {}, default_seed)
    lines = report(document, mistakes)
    if lines:
        raise UsageError("\n".join(lines))
    return planned


def _plan(
    document: Document, flags: Flags, default_seed: int
) -> tuple[list[Planned], list[Mistake]]:
    value = document.value
    if not isinstance(value, Mapping):
        return [], [Mistake((), f"found {show(value)}; allowed: a mapping with `runs:`")]
    if not isinstance(value.get("runs"), list):
        return [], [Mistake(("runs",), f"found {show(value.get('runs'))}; allowed: a list of runs")]
    strange = [key for key in value if key not in _SuiteFile.model_fields]
    mistakes = [
        Mistake((key,), unknown("key", key, _SuiteFile.model_fields), at_key=True)
        for key in strange
    ]
    if not value["runs"]:
        mistakes.append(Mistake(("runs",), "found an empty list; allowed: at least one run"))
    planned: list[Planned] = []
    names: set[str] = set()
    for i, entry in enumerate(value["runs"]):
        plan, found = _plan_one(entry, flags, default_seed)
        if plan is not None and plan.name in names:
            found.append(Mistake(("name",), f"found {show(plan.name)} twice; allowed: once"))
        if plan is not None:
            planned.append(plan)
            names.add(plan.name)
        mistakes += [mistake.under("runs", i) for mistake in found]
    return planned, mistakes


def _plan_one(
    entry: object, flags: Flags, default_seed: int
) -> tuple[Planned | None, list[Mistake]]:
    if not isinstance(entry, Mapping):
        return None, [Mistake((), f"found {show(entry)}; allowed: a mapping with name and expect")]
    own = {key: entry[key] for key in _Expectation.model_fields if key in entry}
    run = {key: value for key, value in entry.items() if key not in own}
    spec, mistakes = examine(overlay(run, flags), default_seed=default_seed)
    try:
        expected = _Expectation.model_validate(own)
    except ValidationError as error:
        return None, mistakes + from_pydantic(error, lambda _: [*_Expectation.model_fields, *KEYS])
    if spec is None or mistakes:
        return None, mistakes
    plan = Planned(
        expected.name, spec, expected.expect, tuple(expected.anomalies), expected.refusals
    )
    return plan, []


def carry_out(
    planned: Sequence[Planned],
    run: Callable[[RunSpec], tuple[int, Path | None, Results | None, str]],
) -> Iterator[Row]:
    """Run a suite and yield a row for each run.

    `run` returns exit code, folder, results and error of a run, and raises nothing but
    KeyboardInterrupt; a run that a person interrupted is the last one.
    """
    for plan in planned:
        code, folder, results, error = run(plan.spec)
        yield judge(plan, code, folder, results, error)
        if code == 130:
            return


def judge(
    plan: Planned, code: int, folder: Path | None, results: Results | None, error: str
) -> Row:
    """Compare what came out of a run with what was expected."""
    if results is None or code not in (0, 1, 2):
        word = "interrupted" if code == 130 else "error"
        return Row(plan, code, word, error or word, folder=folder)
    verdict = results.verdict
    missing = [name for name in plan.anomalies if name not in {a.name for a in verdict.anomalies}]
    why_not = ""
    if verdict.verdict != plan.expect:
        why_not = f"{verdict.verdict} instead of {plan.expect}: {verdict.headline}"
    elif missing:
        why_not = f"not found: {', '.join(missing)}"
    elif (counted := refusals(results)) < plan.refusals:
        why_not = f"stale writes refused: {counted}, expected at least {plan.refusals}"
    found = tuple(dict.fromkeys(anomaly.name for anomaly in verdict.anomalies))
    return Row(plan, code, verdict.verdict, why_not, results.first_finding_s, folder, found)


def refusals(results: Results) -> int:
    """Return how many writes of stale owners were refused, as the workload counted them."""
    counted = results.verdict.stats.get("stale_refused", 0)
    return counted if isinstance(counted, int) else 0


def exit_code(rows: Sequence[Row]) -> int:
    """Return a suite's exit code: 0 all as expected, 255 a run broke, 130 interrupted, else 1."""
    codes = {row.exit_code for row in rows}
    if 130 in codes:
        return 130
    if codes - {0, 1, 2}:
        return 255
    return 0 if rows and all(row.as_expected for row in rows) else 1
