"""The doctor names what does not work, and what never came to an end."""

import json
import os
from typing import Any

import pytest

from harness import doctor
from harness.local import sandbox
from harness.local.sandbox import Left, StepFailed

NETWORK = {"name": "network", "ok": True, "text": "a bridge"}


def findings(
    monkeypatch: pytest.MonkeyPatch, left: Left, *lines: dict[str, Any]
) -> dict[str, doctor.Finding]:
    """Return what is found when the probe prints these lines and ends like that."""

    def launch(_module: str, *, stdout: int, bound_s: float) -> Left:
        assert bound_s == doctor.PROBE_S
        os.write(stdout, "".join(json.dumps(line) + "\n" for line in lines).encode())
        return left

    monkeypatch.setattr(sandbox, "launch", launch)
    return {finding.name: finding for finding in doctor._sandbox()}


def test_what_works_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(monkeypatch, Left(0), {"trying": "network"}, NETWORK)
    assert found["sandbox"].ok
    assert found["network"].text == "a bridge"
    assert not found["network"].fix


def test_a_step_that_never_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ({"trying": "network"}, NETWORK, {"trying": "fault pause"})
    found = findings(monkeypatch, Left(-9), *lines)
    assert not found["sandbox"].ok
    assert found["sandbox"].text == "the probe ended with -9 while it tried: fault pause"
    assert found["network"].ok


def test_a_probe_that_dies_between_steps_accuses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(monkeypatch, Left(1), {"trying": "network"}, NETWORK)
    assert found["sandbox"].text == "the probe ended with 1"


def test_a_sandbox_that_cannot_be_entered_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = StepFailed("unshare: new pid namespaces", 1, "Operation not permitted")
    found = findings(monkeypatch, Left(125, refused))
    assert found["sandbox"].text == "unshare: new pid namespaces: Operation not permitted"
    assert found["sandbox"].fix
