"""Where binaries are found, and how stored bytes are read."""

import sys
from pathlib import Path

import pytest

from harness.errors import HarnessError, UsageError
from harness.target import Stored
from targets._binary import Product, first_line
from targets._stored import pack, unpack
from targets.etcd import Etcd
from targets.valkey import Valkey

PRODUCT = Product(target="toy", command="toyd", wheel="toy_wheel", inside="bin/toyd")


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_path_of_the_user_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(executable(tmp_path / "path" / "toyd").parent))
    own = executable(tmp_path / "own" / "toyd")
    assert PRODUCT.find(str(own)) == str(own)
    monkeypatch.chdir(tmp_path)
    assert PRODUCT.find("own/toyd") == str(own)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert PRODUCT.find("~/own/toyd") == str(own)


def test_the_wheel_comes_before_the_path_and_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_path = executable(tmp_path / "path" / "toyd")
    monkeypatch.setenv("PATH", str(in_path.parent))
    assert PRODUCT.find(None) == str(in_path)
    in_wheel = executable(tmp_path / "wheel" / "toy_wheel" / "bin" / "toyd")
    (tmp_path / "wheel" / "toy_wheel" / "__init__.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(tmp_path / "wheel")
    assert PRODUCT.find(None) == str(in_wheel)
    in_wheel.chmod(0o644)
    assert PRODUCT.find(None) == str(in_path)


@pytest.mark.parametrize(("target", "extra"), [(Etcd, "etcd"), (Valkey, "valkey")])
def test_a_missing_binary_names_the_ways_out(
    target: type[Etcd] | type[Valkey], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for wrong in (None, str(tmp_path / "nothing"), str(tmp_path)):
        with pytest.raises(UsageError) as missing:
            target(binary=wrong).servers()
        assert f"pip install '.[{extra}]'" in str(missing.value)
        assert f"{extra}[binary=" in str(missing.value)
        with pytest.raises(UsageError):
            target(binary=wrong).version()


def test_a_version_is_the_first_line_of_what_the_program_says() -> None:
    assert first_line([sys.executable, "-c", "print(' toy 1.2 ');print('more')"]) == "toy 1.2"
    with pytest.raises(HarnessError, match="does not tell"):
        first_line([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(HarnessError, match="/nonexistent"):
        first_line(["/nonexistent/toyd"])


def test_value_and_token_come_back_as_they_were_stored() -> None:
    for value, token in (("w1-1", 7), (None, None), ({"a": [1]}, 2**60), ("\\xff", 0)):
        assert unpack(pack(value, token)) == Stored(value, token)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff\xfe", "\\xff\\xfe"),
        (b'[1, "\xff"]', '[1, "\\xff"]'),
        (b'[1, "\\ud800"]', '[1, "\\ud800"]'),
        (b"plain", "plain"),
        (b'{"value": 1}', '{"value": 1}'),
        (b'["1", 2]', '["1", 2]'),
        (b"[1, 2, 3]", "[1, 2, 3]"),
        (b"", ""),
        (b"[" * 100_000, "[" * 100_000),
    ],
    ids=str,
)
def test_foreign_bytes_are_text_without_a_token(data: bytes, text: str) -> None:
    assert unpack(data) == Stored(text)
