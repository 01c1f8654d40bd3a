"""`junit.xml`: the verdict for machines that count test cases.

One test case a property.  A broken property is a failure.  A property that was not judged is an
error where the run is unknown, since what proves nothing must not look green; where the run was
judged, no case of it came up, and it is skipped.  A run that is unknown as a whole, or that failed
without a broken property, says so in a test case of its own (`judged`).
"""

from xml.etree import ElementTree as ET

from harness.evidence import Evidence
from harness.results import Results
from harness.verdict import Property
from reports.svg import add
from reports.text import clean, clean_block

_MAX_SENTENCES = 5


def render(evidence: Evidence, results: Results) -> bytes:
    """Return the XML; the same input gives the same bytes."""
    verdict, spec = results.verdict, evidence.spec
    suite = ET.Element("testsuite")
    properties = add(suite, "properties")
    known = {
        "verdict": verdict.verdict,
        "run": results.run,
        "report": f"{results.run}/report.html",
        "command": results.command,
    }
    if spec is not None:
        known |= {"seed": str(spec.seed), "lock": str(spec.lock), "store": str(spec.store)}
    for name, value in known.items():
        add(properties, "property", name=name, value=value)
    classname = f"vanwinkle.{clean(spec.workload, 80) if spec else 'history'}"
    for item in verdict.properties:
        _property(add(suite, "testcase", classname=classname, name=item.name), item, results)
    judged = any(p.verdict == "fail" for p in verdict.properties) or verdict.verdict != "fail"
    if (
        verdict.verdict == "unknown"
        or results.error is not None
        or not judged
        or not len(suite) > 1
    ):
        _judged(add(suite, "testcase", classname=classname, name="judged"), results)
    cases = suite.findall("testcase")
    suite.attrib = {
        "name": clean(results.run, 200),
        "tests": str(len(cases)),
        "failures": str(len(suite.findall("testcase/failure"))),
        "skipped": str(len(suite.findall("testcase/skipped"))),
        "errors": str(len(suite.findall("testcase/error"))),
        "time": f"{results.duration_s:.3f}",
        "timestamp": clean(results.began, 40),
    }
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    data: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _property(case: ET.Element, item: Property, results: Results) -> None:
    if item.verdict == "fail":
        found = [a for a in results.verdict.anomalies if a.name == item.name]
        sentences = [a.sentence for a in found[:_MAX_SENTENCES]] or [results.verdict.headline]
        if len(found) > _MAX_SENTENCES:
            sentences.append(f"{len(found) - _MAX_SENTENCES} more in results.json")
        message = clean(sentences[0])
        text = clean_block("\n".join([*sentences, f"repeat: {results.command}"]), 20_000)
        add(case, "failure", message=message, type=item.name).text = text
    elif item.verdict == "unknown":
        message = item.note or "this property could not be judged"
        if results.verdict.verdict != "unknown":
            add(case, "skipped", message=message)
            return
        add(case, "error", clean_block(_reasons(results)), message=message, type="unknown")


def _judged(case: ET.Element, results: Results) -> None:
    verdict = results.verdict
    if verdict.verdict == "fail":
        add(case, "failure", verdict.headline, message=verdict.headline, type="fail")
    elif verdict.verdict == "unknown" or results.error is not None:
        kind = verdict.unknown[0].reason.value if verdict.unknown else "harness-error"
        add(case, "error", message=verdict.headline, type=kind).text = _reasons(results)


def _reasons(results: Results) -> str:
    lines = [f"{u.reason.value}: {u.text}" for u in results.verdict.unknown]
    if results.error is not None:
        lines.append(f"error: {results.error}")
    return clean_block("\n".join(lines), 20_000)
