"""What hinders a run on the engine, and what does not."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.docker import backend
from harness.docker import sweep as sweeping
from harness.docker.clocks import HolderClocks
from harness.docker.engine import EngineError, is_here


class Engine:
    """An engine with another kernel than this machine's."""

    def info(self) -> dict[str, str]:
        return {"KernelVersion": "1.2.13"}

    def close(self) -> None: ...


def test_what_cannot_be_removed_is_told_and_hinders_no_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(api: Any) -> None:
        raise EngineError("what is left of run 1 cannot be removed")

    monkeypatch.setattr(backend, "connect", Engine)
    monkeypatch.setattr(sweeping, "sweep", refuse)
    backend.require()
    told = capsys.readouterr().err
    assert told == "winkle: what is left of run 1 cannot be removed; `winkle heal` tries it again\n"


def test_clocks_of_an_engine_on_another_machine_are_refused() -> None:
    assert not is_here(Engine())
    holder: Any = SimpleNamespace(is_here=False)
    assert "runs on another machine" in (HolderClocks(holder).unavailable() or "")
