"""JUnit: what is not proven is never green, and any text makes valid XML."""

from xml.etree import ElementTree as ET

import msgspec
import pytest

from harness.evidence import Evidence
from harness.results import Results
from harness.verdict import Anomaly, Reason, Unknown, Verdict
from reports.junit import render
from tests.test_reports_samples import failing, passing, results, undecided


def suite(evidence: Evidence, judged: Results) -> ET.Element:
    found = ET.fromstring(render(evidence, judged)).find("testsuite")  # noqa: S314 - made by us
    assert found is not None
    cases = found.findall("testcase")
    assert found.get("tests") == str(len(cases))
    assert found.get("failures") == str(len(found.findall("testcase/failure")))
    assert found.get("errors") == str(len(found.findall("testcase/error")))
    return found


def outcomes(found: ET.Element) -> dict[str | None, str]:
    return {c.get("name"): c[0].tag if len(c) else "passed" for c in found.findall("testcase")}


def test_a_broken_property_is_a_failure_with_its_sentences_and_the_command() -> None:
    evidence, judged = failing()
    found = suite(evidence, judged)
    assert outcomes(found) == {
        "stale-owner-write": "failure",
        "lost-update": "failure",
        "duplicate-grant": "passed",
        "fence-regression": "passed",
        "stale-read": "skipped",
    }
    failure = found.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "stale-owner-write"
    assert failure.get("message") == judged.verdict.anomalies[0].sentence
    assert judged.command in (failure.text or "")


def test_the_suite_says_what_ran_and_where_the_report_is() -> None:
    evidence, judged = failing()
    found = suite(evidence, judged)
    properties = {p.get("name"): p.get("value") for p in found.findall("properties/property")}
    assert properties["seed"] == "7"
    assert properties["report"] == f"{judged.run}/report.html"
    assert found.get("timestamp") == judged.began


def test_a_pass_is_green() -> None:
    evidence, judged = passing()
    found = suite(evidence, judged)
    assert set(outcomes(found).values()) == {"passed", "skipped"}
    assert found.get("failures") == found.get("errors") == "0"


def test_an_unknown_run_is_an_error_of_its_own() -> None:
    found = suite(*undecided())
    assert outcomes(found)["judged"] == "error"
    error = found.find("testcase[@name='judged']/error")
    assert error is not None
    assert error.get("type") == "vacuous"
    assert "fault-not-effective: pause:who=holder" in (error.text or "")
    assert "passed" not in outcomes(found).values()


def test_a_fail_without_a_broken_property_is_not_green() -> None:
    evidence, judged = failing()
    properties = tuple(p for p in judged.verdict.properties if p.verdict != "fail")
    verdict = msgspec.structs.replace(judged.verdict, properties=properties)
    found = suite(evidence, msgspec.structs.replace(judged, verdict=verdict))
    assert outcomes(found)["judged"] == "failure"


def test_a_harness_error_beside_a_pass_is_not_green() -> None:
    evidence, judged = passing()
    found = suite(evidence, msgspec.structs.replace(judged, error="the disk is full"))
    error = found.find("testcase[@name='judged']/error")
    assert error is not None
    assert "the disk is full" in (error.text or "")


@pytest.mark.parametrize("text", ["\x00\x1b[31m", "]]></failure>", "\ud800\ufffe", "a\r\nb\t\"'&<"])
def test_any_text_makes_valid_xml(text: str) -> None:
    evidence, judged = failing()
    anomaly = Anomaly(name="stale-owner-write", sentence=text, ops=(0,), time_ns=0)
    unknown = Unknown(reason=Reason.HARNESS_ERROR, text=text)
    verdict = Verdict(
        verdict="fail",
        headline=text,
        anomalies=(anomaly,),
        unknown=(unknown,),
        properties=tuple(
            msgspec.structs.replace(p, name=p.name + text, note=text)
            for p in judged.verdict.properties
        ),
    )
    judged = results(verdict, error=text, facts={text: text})
    judged = msgspec.structs.replace(judged, run=text, command=text, began=text)
    found = suite(evidence, judged)
    assert found.findall("testcase")
    assert render(evidence, judged) == render(evidence, judged)
