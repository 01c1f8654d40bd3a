"""docs/reference is what the code says: pages, schemas, and real data that fits the schemas."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs import words
from docs.generate import FOLDER, described, planned, reference, type_words
from harness.judge import check_folder
from harness.protocol import (
    Go,
    Hello,
    SendOp,
    ToWorker,
    decode_from_worker,
    decode_to_worker,
    encode,
)
from harness.runfile import read, to_yaml
from harness.schemas import published
from harness.suite import locate, shipped
from harness.yaml_places import read_yaml
from tests.live import NOOP

RUN_YAML = """
lock: atlasmart
store: atlasmart
recorded: {command: winkle run run.yaml, began: now, fence: none, facts: {python: "3"}}
"""
HISTORY = (
    '{"process":0,"type":"invoke","f":"acquire","key":"k0","time_ns":1,"worker":"w1"}\n'
    '{"process":0,"type":"ok","f":"acquire","key":"k0","token":1,"time_ns":2,"worker":"w1"}\n'
)


def validate(value: Any, name: str, part: str = "") -> None:
    """Check a value against a committed schema, or against a part of it."""
    schema = json.loads((FOLDER / name).read_text())
    if part:
        schema = {
            "$ref": f"#/properties/{part}",
            "$defs": schema["$defs"],
            "properties": {part: schema["properties"][part]},
        }
    jsonschema.Draft202012Validator(schema).validate(value)


def test_the_reference_is_what_the_code_says() -> None:
    """`make docs` writes it again."""
    expected = reference()
    committed = {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    assert set(committed) == set(expected)
    different = [name for name, text in expected.items() if committed[name] != text]
    assert not different, f"run `make docs`: {', '.join(different)}"


def test_a_name_without_its_sentence_stops_the_generation() -> None:
    assert described({"a": "A", "b": "B"}, ["b", "a"]) == ["B", "A"]
    with pytest.raises(KeyError, match="c"):
        described({"a": "A"}, ["a", "c"])
    with pytest.raises(KeyError, match="b"):
        described({"a": "A", "b": "B"}, ["a"])


def test_types_are_told_in_words() -> None:
    optional = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert type_words(optional) == "whole number or null"
    assert type_words({"type": "array", "items": {"$ref": "Unknown"}}) == "list of Unknown"
    assert type_words({"enum": ["a", "b"]}) == "a or b"
    assert type_words({}) == "anything"


def test_run_files_fit_their_schema() -> None:
    written = to_yaml(read(words.RUN_EXAMPLE), {"facts": {"python": "3"}})
    for text in (words.RUN_EXAMPLE, written):
        validate(read_yaml(text, "run.yaml").value, "run.schema.json")
    with pytest.raises(jsonschema.ValidationError, match="tll"):
        validate({"lock": "etcd", "store": "etcd", "tll": "2s"}, "run.schema.json")


@pytest.mark.parametrize("name", shipped())
def test_shipped_suites_fit_their_schema(name: str) -> None:
    validate(read_yaml(locate(name).read_bytes(), name).value, "suite.schema.json")
    expected = {run.expect for run in planned(name)}
    assert {"pass", "fail"} <= expected, "a suite that only ever passes"


def test_results_that_were_written_fit_their_schema(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN_YAML)
    (tmp_path / "history.jsonl").write_text(HISTORY)
    check_folder(tmp_path)
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["verdict"]["verdict"] == "unknown"
    validate(written, "results.schema.json")
    with pytest.raises(jsonschema.ValidationError):
        validate({**written, "verdict": "pass"}, "results.schema.json")


def test_the_example_exchange_is_one() -> None:
    for line in words.PROTOCOL_EXAMPLE.splitlines():
        to_worker = line.startswith("-> ")
        part, decode = (
            ("to_worker", decode_to_worker) if to_worker else ("from_worker", decode_from_worker)
        )
        validate(json.loads(line[3:]), "worker-protocol.schema.json", part)
        decode(line[3:].encode())


def test_what_our_worker_says_fits_the_protocol_schema() -> None:
    """A whole life of a worker: connect, acquire, check, be told to go, fail, end of input."""
    noop = {"name": f"{NOOP}:Noop", "options": {}}
    servers: dict[str, Any] = {"lock": [], "store": []}
    said: list[ToWorker] = [
        Hello(worker="w1", lock=noop, store=noop, servers=servers, ttl_s=30.0, op_timeout_s=1.0),
        SendOp(id=0, f="acquire", key="k0", value={"ttl_s": 6.0}),
        SendOp(id=1, f="check", key="k0", value={"ask": True, "think_ms": 0}, token=1),
        SendOp(id=2, f="write", key="k0", value="v", token=1),
        SendOp(id=3, f="no-such-operation"),
    ]
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "harness.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        for message in said:
            validate(json.loads(encode(message)), "worker-protocol.schema.json", "to_worker")
            worker.stdin.write(encode(message))
        worker.stdin.flush()
        heard: list[dict[str, Any]] = []
        while {"ready", "done", "ask", "phase", "belief"} - {m["type"] for m in heard} or not any(
            m.get("id") == 9 and m["type"] == "done" for m in heard
        ):
            line = json.loads(worker.stdout.readline())
            validate(line, "worker-protocol.schema.json", "from_worker")
            heard.append(line)
            if line["type"] == "ask":
                worker.stdin.write(encode(Go(id=9, ask=line["ask"])))
                worker.stdin.flush()
        worker.stdin.close()
        worker.stdout.read()
    assert worker.returncode == 0


def test_published_schemas_are_all_in_the_reference() -> None:
    assert set(published()) <= set(reference())
