"""The code that the pages show is code: it compiles, loads, and is what the examples are."""

import re
from pathlib import Path
from typing import Any

import pytest

from harness import plugins
from harness.runfile import read
from harness.ssh.inventory import read as read_inventory
from harness.suite import read_suite
from harness.target import ErrorTable, Grant, LockService, RefusedError, Server, Store, Target
from tests.support_docs import DOCS, ROOT, Block, blocks, named_file, pages

MYLOCK = DOCS / "examples" / "mylock.py"
CODE_LINES_MAX = 50


def of(language: str) -> list[Block]:
    return [block for page in pages() for block in blocks(page) if block.language == language]


def where(block: Block) -> str:
    return block.where


def test_the_readme_shows_the_example_as_it_is() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = re.search(r"<!-- docs/examples/mylock.py -->\n```python\n(.*?)```", readme, re.DOTALL)
    assert shown is not None
    assert shown[1] == MYLOCK.read_text("utf-8")


def test_the_example_is_short() -> None:
    body = MYLOCK.read_text("utf-8").split('"""', 2)[2]
    lines = [line for line in body.splitlines() if line.strip()]
    assert len(lines) < CODE_LINES_MAX


def test_the_example_is_a_target() -> None:
    made = plugins.make("targets", f"{MYLOCK}:MyLock", {})
    assert isinstance(made, Target)
    assert isinstance(made, LockService)
    assert not isinstance(made, Store)


@pytest.mark.parametrize("block", of("python"), ids=where)
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.where, "exec")


@pytest.mark.parametrize("block", of("yaml"), ids=where)
def test_yaml_is_a_run_file_a_suite_or_an_inventory(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mylock.py").write_bytes(MYLOCK.read_bytes())
    monkeypatch.chdir(tmp_path)
    if "\nhosts:" in block.text:
        file = tmp_path / "hosts.yaml"
        file.write_text(block.text, "utf-8")
        assert read_inventory(file).hosts
        return
    if "\nruns:" not in block.text:
        assert read(block.text).faults
        return
    file = tmp_path / "suite.yaml"
    file.write_text(block.text, "utf-8")
    assert read_suite(file)


def test_the_shape_of_a_target_is_one(tmp_path: Path) -> None:
    page = DOCS / "howto" / "write-a-target.md"
    name, text = next(found for block in blocks(page) if (found := named_file(block)))
    (tmp_path / name).write_text(text, "utf-8")
    made = plugins.make("targets", f"{tmp_path / name}:MySystem", {"nodes": 5})
    assert isinstance(made, Target)
    assert isinstance(made, LockService)
    assert isinstance(made, Store)
    assert isinstance(made, ErrorTable)
    servers = made.servers()
    assert len(servers) == 5
    assert all(isinstance(server, Server) for server in servers)
    assert made.errors[0].matches(ConnectionRefusedError())
    assert not made.errors[0].matches(TimeoutError())


def test_the_bridge_drops_its_program_after_a_missing_answer(tmp_path: Path) -> None:
    """A late answer must never be taken for the answer to the next request."""
    page = DOCS / "howto" / "write-a-worker-in-another-language.md"
    files = dict(found for block in blocks(page) if (found := named_file(block)))
    path = tmp_path / "bridge.py"
    path.write_text(files["bridge.py"], "utf-8")
    module = plugins.factory("targets", f"{path}:Client")
    client: Any = module(_Place(), 30.0)
    client.argv = ["cat"]  # echoes the request, which has no kind
    with pytest.raises(KeyError):
        client.acquire("k0", 1.0)
    first = client.program.pid
    client.argv = ["sleep", "60"]
    client.close()
    client.timeout_s = 0.2
    with pytest.raises(ConnectionError):
        client.renew(Grant("k0", 1, 1.0))
    assert not client.program
    client.timeout_s = 30.0
    client.argv = ["sed", "-u", r's/.*/{"kind":"refused","text":"held"}/']
    with pytest.raises(RefusedError, match="held"):
        client.acquire("k0", 1.0)
    assert client.program.pid != first
    client.close()


class _Place:
    address, port = "127.0.0.1", 1
