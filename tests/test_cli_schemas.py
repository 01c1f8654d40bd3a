"""The published schemas: valid, complete, and the same bytes each time."""

import json
from pathlib import Path

import pytest

from harness.results import Results, encode
from harness.schemas import published, write
from harness.verdict import Verdict


def test_every_published_schema_is_a_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert set(published()) == {
        "inventory.schema.json",
        "results.schema.json",
        "run.schema.json",
        "suite.schema.json",
        "worker-protocol.schema.json",
    }
    for schema in published().values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_results_fit_their_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    results = Results(
        run="r",
        command="winkle run",
        began="",
        duration_s=1.0,
        verdict=Verdict(verdict="pass", headline="well"),
    )
    jsonschema.validate(json.loads(encode(results)), published()["results.schema.json"])


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in write(tmp_path)}
    second = {path.name: path.read_bytes() for path in write(tmp_path)}
    assert first == second
    assert set(first) == set(published())
