"""What one checker says about one property; results of several keys add up."""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.verdict import Anomaly, Outcome, Property


@dataclass(frozen=True)
class Result:
    """`checked` counts the cases that could have broken the property, `broken` those that did."""

    name: str
    checked: int
    anomalies: tuple[Anomaly, ...] = ()
    broken: int = 0
    note: str = ""


def found(name: str, checked: int, anomalies: Iterable[Anomaly], note: str = "") -> Result:
    """Return a result in which every anomaly of that name is one broken case."""
    listed = tuple(anomalies)
    return Result(name, checked, listed, len(listed), note)


def total(results: Iterable[Result]) -> dict[str, Result]:
    """Return the results added up by name, in the order in which the names first came."""
    sums: dict[str, Result] = {}
    for result in results:
        old = sums.get(result.name)
        sums[result.name] = (
            result
            if old is None
            else Result(
                result.name,
                old.checked + result.checked,
                old.anomalies + result.anomalies,
                old.broken + result.broken,
                old.note or result.note,
            )
        )
    return sums


def as_property(result: Result) -> Property:
    """Return the row of the properties table; a property without a case is not called kept."""
    verdict: Outcome = "fail" if result.broken else "pass" if result.checked else "unknown"
    return Property(
        name=result.name,
        verdict=verdict,
        checked=result.checked,
        broken=result.broken,
        note=result.note or ("" if result.checked else "no case came up"),
    )
