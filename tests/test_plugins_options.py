"""The options of a plug-in, from its `Options` model or from its signature."""

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.options import Option, describe, names_of, validate


class WithModel:
    """Takes its options as given and makes its own record of them."""

    class Options(BaseModel):
        """Options."""

        nodes: int = Field(3, ge=1, description="members")
        mode: Literal["fast", "safe"] = "safe"
        path: str | None = None
        needed: float = Field(gt=0)

        @model_validator(mode="after")
        def _both(self) -> "WithModel.Options":
            if self.mode == "fast" and self.nodes > 3:
                raise ValueError("fast wants at most 3 nodes")
            return self


def with_signature(needed: str, *, copy: int = 1, json: bool = False, free=None) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Option names that pydantic keeps for itself must do as well."""


def unreadable(*, thing: "NoSuchName" = 1) -> None:  # type: ignore[name-defined]  # noqa: F821
    """An annotation that only a type checker can see."""


def odd(*, thing: object = None, clock: "range | None" = None) -> None:
    """Annotations that are no schema."""


@pytest.mark.parametrize(
    ("options", "mistakes"),
    [
        ({"needed": 1}, []),
        ({}, [("needed", "missing; it has no default")]),
        ({"needed": 0}, [("needed", "found 0; allowed: more than 0.0")]),
        ({"needed": 1, "nodes": 0}, [("nodes", "found 0; allowed: at least 1")]),
        ({"needed": 1, "nodes": 2.5}, [("nodes", "found 2.5; allowed: a whole number")]),
        ({"needed": 1, "nodes": [1]}, [("nodes", "found a list; allowed: a whole number")]),
        ({"needed": 1, "mode": "fats"}, [("mode", 'found "fats"; allowed: fast or safe')]),
        ({"needed": 1, "path": 3}, [("path", "found 3; allowed: a text")]),
        (
            {"needed": 1, "nodez": 1, "Mode": 2},
            [
                ("nodez", 'unknown option "nodez"; did you mean nodes? '),
                ("Mode", 'unknown option "Mode"; did you mean mode? '),
            ],
        ),
    ],
)
def test_a_model_validates(options: dict[str, Any], mistakes: list[tuple[str, str]]) -> None:
    _, found = validate(WithModel, options)
    assert [mistake.path for mistake in found] == [(name,) for name, _ in mistakes]
    for mistake, (_, text) in zip(found, mistakes, strict=True):
        assert mistake.text.startswith(text)


def test_a_mistake_of_the_whole_is_a_mistake_of_no_option() -> None:
    _, (mistake,) = validate(WithModel, {"needed": 1, "mode": "fast", "nodes": 5})
    assert (mistake.path, mistake.text) == ((), "fast wants at most 3 nodes")


def test_a_factory_with_a_model_gets_the_options_as_given() -> None:
    assert validate(WithModel, {"needed": 1, "nodes": "5"}) == ({"needed": 1, "nodes": "5"}, [])


def test_a_signature_is_a_model_too() -> None:
    values, mistakes = validate(with_signature, {"needed": "x", "copy": "5", "free": [1]})
    assert mistakes == []
    assert values == {"needed": "x", "copy": 5, "free": [1]}
    _, mistakes = validate(with_signature, {"copy": "x", "jsn": True})
    assert {mistake.path for mistake in mistakes} == {("needed",), ("copy",), ("jsn",)}


def test_annotations_that_nobody_can_read_do_not_stop_a_plug_in() -> None:
    assert validate(unreadable, {"thing": 3}) == ({"thing": 3}, [])
    assert validate(odd, {"thing": 3}) == ({"thing": 3}, [])


def test_a_plug_in_may_take_any_option() -> None:
    class Wild:
        class Options(BaseModel):
            model_config = ConfigDict(extra="allow")

            known: int = 1

    assert names_of(Wild) is None
    assert validate(Wild, {"other": 1}) == ({"other": 1}, [])


def test_options_are_described_in_words() -> None:
    assert describe(WithModel) == [
        Option("nodes", "whole number from 1", "3", "members"),
        Option("mode", "fast|safe", "safe", ""),
        Option("path", "text", "none", ""),
        Option("needed", "number over 0", "required", ""),
    ]
    assert [(o.name, o.allowed, o.default) for o in describe(with_signature)] == [
        ("needed", "text", "required"),
        ("copy", "whole number", "1"),
        ("json", "true|false", "false"),
        ("free", "anything", "none"),
    ]
