"""The short spellings of targets and faults, as on the command line."""

import pytest

from harness.brackets import parse_fault, parse_scalar, parse_target


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("no", "no"),
        ("7", 7),
        ("-7", -7),
        ("2.5", 2.5),
        ("1.0e3", 1000.0),
        ("2.5leases", "2.5leases"),
        ("1.2.3", "1.2.3"),
        ("'7'", "7"),
        ('"a,b"', "a,b"),
        ("", ""),
    ],
)
def test_scalars(text: str, value: object) -> None:
    found = parse_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("etcd", "etcd", {}),
        ("etcd[]", "etcd", {}),
        (
            " etcd[nodes=3, guarded=true ]",
            "etcd",
            {"nodes": 3, "guarded": True},
        ),
        ("./my lock.py:Lock[a='x,y',b=2]", "./my lock.py:Lock", {"a": "x,y", "b": 2}),
        ("pkg.mod:attr", "pkg.mod:attr", {}),
    ],
)
def test_targets(text: str, name: str, options: dict[str, object]) -> None:
    assert parse_target(text) == {"name": name, "options": options}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "allowed: a name"),
        ("[a=1]", "allowed: a name"),
        ("etcd[a=1", "allowed: a name"),
        ("etcd[a=1]x", "allowed: a name"),
        ("etcd]a=1[", "allowed: a name"),
        ("etcd[a]", 'found "a" where option=value is needed'),
        ("etcd[a=1,,b=2]", 'found "" where option=value'),
        ("etcd[=1]", 'found "=1" where option=value'),
        ("etcd[a=]", "option a has no value"),
        ("etcd[a=1,a=2]", "option a is given twice"),
        ("etcd[a='x]", "where option=value is needed"),
    ],
)
def test_wrong_targets_say_what_is_allowed(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="allowed") as caught:
        parse_target(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("pause", {"kind": "pause"}),
        (
            "pause:who=worker:2,at=3s,for=2.5leases,count=3",
            {"kind": "pause", "who": "worker:2", "at": "3s", "for": "2.5leases", "count": 3},
        ),
        ("./my.py:Fault:who=holder", {"kind": "./my.py:Fault", "who": "holder"}),
        ("my.mod:Fault", {"kind": "my.mod:Fault"}),
        ("my.mod:Fault:depth=2", {"kind": "my.mod:Fault", "depth": 2}),
    ],
)
def test_faults(text: str, values: dict[str, object]) -> None:
    assert parse_fault(text) == values


@pytest.mark.parametrize("text", ["", ":who=holder", "who=holder", "pause:kind=kill"])
def test_wrong_faults_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="found"):
        parse_fault(text)
