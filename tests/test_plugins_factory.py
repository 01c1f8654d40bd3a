"""Plug-ins by name, by import and by file; what is wrong with one is said in plain words."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from harness import plugins
from harness.errors import UsageError
from harness.plugins import PluginError, describe, entries, factory, guard_origin, make
from tests.support_plugins import Etcd, install


@pytest.fixture(autouse=True)
def _stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def test_a_name_is_an_entry_point() -> None:
    assert factory("targets", "etcd") is Etcd
    assert make("targets", "etcd", {"nodes": 5}).options.nodes == 5


def test_an_unknown_name_lists_what_exists_and_the_nearest() -> None:
    with pytest.raises(PluginError) as caught:
        factory("targets", "valky")
    assert str(caught.value) == (
        'target valky: unknown target "valky"; did you mean valkey? allowed: etcd, lonely, valkey,'
        " or module:attribute, or ./file.py:attribute"
    )


def test_a_file_is_as_good_as_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my lock.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Lock:\n    nodes: int = 1\n"
        "loads = []\nloads.append(1)\n"
    )
    monkeypatch.chdir(tmp_path)
    made = make("targets", "./my lock.py:Lock", {"nodes": 2})
    assert made.nodes == 2
    again = factory("targets", f"{tmp_path}/my lock.py:Lock")
    assert again is type(made), "one file is one module, however it is spelled"
    module = sys.modules[type(made).__module__]
    assert module.__file__ == str(tmp_path / "my lock.py")
    assert type(made).__module__ != "my lock"


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lock.py").write_text(f"def make(): return {folder!r}\n")
    assert [make("targets", f"{tmp_path}/{f}/lock.py:make", {}) for f in "ab"] == ["a", "b"]


def test_an_import_sees_the_folder_that_winkle_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mylockmod.py").write_text("class Lock:\n    name = 'mine'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    assert make("targets", "mylockmod:Lock", {}).name == "mine"
    assert sys.path[-1] == str(tmp_path), "it goes last and can hide nothing"
    monkeypatch.delitem(sys.modules, "mylockmod")


@pytest.mark.parametrize(
    ("source", "attribute", "words"),
    [
        ("x = 1\n", "Lock", "nothing there is named Lock"),
        ("class Lok: pass\n", "Lock", "did you mean Lok?"),
        ("Lock = 3\n", "Lock", "found 3; allowed: something that can be called"),
        ("1/0\n", "Lock", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", "Lock", "cannot be loaded: SystemExit: 3"),
        ("def (\n", "Lock", "cannot be loaded: SyntaxError"),
        ("def Lock(): raise OSError('disk')\n", "Lock", "cannot be made: OSError: disk"),
        ("def Lock(): raise OSError\n", "Lock", "cannot be made: OSError: no message"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, source: str, attribute: str, words: str) -> None:
    (tmp_path / "lock.py").write_text(source)
    for _ in range(2):  # a failed load must not leave half a module behind
        with pytest.raises(UsageError) as caught:
            make("targets", f"{tmp_path}/lock.py:{attribute}", {})
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./nowhere.py:Lock", "there is no file nowhere.py"),
        ("no_such_module_xyz:Lock", "cannot be imported: ModuleNotFoundError"),
        ("json:nothing", "nothing there is named nothing"),
        ("etcd:guarded", 'found "etcd:guarded"; allowed: etcd, its options as option=value'),
    ],
)
def test_what_is_wrong_with_a_path(name: str, words: str) -> None:
    with pytest.raises(PluginError) as caught:
        factory("targets", name)
    assert words in str(caught.value)


def test_every_wrong_option_is_named_with_what_is_allowed() -> None:
    with pytest.raises(PluginError) as caught:
        make("targets", "etcd", {"nodes": "many", "guraded": True})
    assert str(caught.value).split("\n") == [
        (
            'target etcd: options.guraded: unknown option "guraded"; did you mean guarded? allowed:'
            " guarded, nodes"
        ),
        'target etcd: options.nodes: found "many"; allowed: a whole number',
    ]


def test_an_entry_point_that_does_not_load_is_described_and_not_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = EntryPoint("broken", "no_such_module_xyz:Target", "vanwinkle.targets")
    good = EntryPoint("good", "tests.support_plugins:Etcd", "vanwinkle.targets")
    monkeypatch.setattr(plugins, "entries", lambda _: {"broken": broken, "good": good})
    first, second = describe("targets")
    assert "No module named" in str(first.trouble)
    assert second.trouble is None
    assert second.text == "A cluster."
    assert [(o.name, o.allowed, o.default, o.text) for o in second.options] == [
        ("nodes", "whole number 1..9", "3", "members"),
        ("guarded", "true|false", "false", ""),
    ]


def test_two_packages_that_claim_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    claims = [EntryPoint("etcd", "a:A", "g"), EntryPoint("etcd", "b:B", "g")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: claims)
    with pytest.raises(UsageError, match="two packages provide the target etcd: a:A and b:B"):
        entries("targets")


def test_the_installed_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert {"etcd", "valkey", "atlasmart"} <= set(entries("targets"))
    assert "pause" in entries("faults")
    assert "fencing" in entries("workloads")


def test_our_packages_are_ours() -> None:
    guard_origin()


def test_a_package_that_hides_ours_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirtargets"
    theirs.mkdir()
    (theirs / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError) as caught:
        guard_origin(["theirtargets"])
    assert f"the package `theirtargets` is at {theirs}" in str(caught.value)
    assert "pipx" in str(caught.value)
    with pytest.raises(UsageError, match="is missing"):
        guard_origin(["no_such_package_xyz"])


def test_a_single_file_module_does_not_pass_for_our_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "filetargets.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"filetargets\.py"):
        guard_origin(["filetargets"])


def test_plug_ins_may_be_functions(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("def target(nodes: int = 1, **rest): return nodes, rest\n")
    made: Any = make("targets", f"{tmp_path}/t.py:target", {"nodes": 2, "colour": "red"})
    assert made == (2, {"colour": "red"})
