"""The options of a plug-in: what it takes, and whether what a user gave is right.

A factory says it in one of two ways.  It may carry a pydantic model named `Options`; then it gets
the options as they were given and makes its own record of them.  Or it is a plain callable, and
its signature with annotations is the model; then it gets the validated values.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.mistakes import Mistake, from_pydantic, unknown

if TYPE_CHECKING:
    from pydantic import BaseModel, ConfigDict

Factory = Callable[..., Any]


@dataclass(frozen=True)
class Option:
    """One option for `winkle list`: `allowed` and `default` as a person would write them."""

    name: str
    allowed: str
    default: str
    text: str


def model_of(factory: Factory) -> "type[BaseModel]":
    """Return the pydantic model of a factory's options."""
    from pydantic import BaseModel

    model = getattr(factory, "Options", None)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model
    return _model_of_signature(factory)


def names_of(factory: Factory) -> list[str] | None:
    """Return the names of a factory's options, None when it takes any."""
    model = model_of(factory)
    return None if model.model_config.get("extra") == "allow" else _names(model)


def validate(factory: Factory, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the keyword arguments for the factory, and every mistake in them by option."""
    from pydantic import ValidationError

    model = model_of(factory)
    known = names_of(factory)
    strange = [] if known is None else [name for name in options if name not in known]
    mistakes = [
        Mistake((name,), unknown("option", name, known or ()), at_key=True) for name in strange
    ]
    given = {name: value for name, value in options.items() if name not in strange}
    try:
        made = model.model_validate(given)
    except ValidationError as error:
        mistakes += from_pydantic(error, lambda _: known or ())
        return {}, mistakes
    if model is getattr(factory, "Options", None):
        return given, mistakes
    values = {
        field.alias or name: getattr(made, name) for name, field in model.model_fields.items()
    }
    return {name: values.get(name, value) for name, value in given.items()}, mistakes


def describe(factory: Factory) -> list[Option]:
    """Return the options of a factory in the order in which it declares them."""
    model = model_of(factory)
    schema = model.model_json_schema()
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    required = schema.get("required", [])
    return [
        Option(
            name,
            allowed_text(entry, schema.get("$defs", {})),
            "required" if name in required else _default_text(entry.get("default")),
            str(entry.get("description", "")),
        )
        for name, entry in properties.items()
    ]


def allowed_text(entry: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return what a JSON schema allows, in words."""
    if "$ref" in entry:
        return allowed_text(definitions.get(entry["$ref"].rsplit("/", 1)[-1], {}), definitions)
    if "enum" in entry:
        return "|".join(str(value) for value in entry["enum"])
    if "const" in entry:
        return str(entry["const"])
    if "anyOf" in entry:
        parts = [part for part in entry["anyOf"] if part.get("type") != "null"]
        return " or ".join(allowed_text(part, definitions) for part in parts)
    words = {"integer": "whole number", "string": "text", "boolean": "true|false", "array": "list"}
    kind = str(entry.get("type", "anything"))
    text = words.get(kind, kind)
    low = entry.get("minimum", entry.get("exclusiveMinimum"))
    high = entry.get("maximum", entry.get("exclusiveMaximum"))
    if low is not None and high is not None:
        return f"{text} {low}..{high}"
    if low is not None:
        return f"{text} {'from' if 'minimum' in entry else 'over'} {low}"
    if high is not None:
        return f"{text} {'to' if 'maximum' in entry else 'under'} {high}"
    return text


def _default_text(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _names(model: "type[BaseModel]") -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_of_signature(factory: Factory) -> "type[BaseModel]":
    from pydantic import ConfigDict, Field
    from pydantic.errors import PydanticSchemaGenerationError

    parameters = _parameters(factory)
    wild = any(p.kind is p.VAR_KEYWORD for p in parameters)
    config = ConfigDict(extra="allow" if wild else "ignore")
    fields: dict[str, Any] = {}
    for i, parameter in enumerate(parameters):
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        bare = parameter.annotation is parameter.empty or isinstance(parameter.annotation, str)
        default = ... if parameter.default is parameter.empty else parameter.default
        # A neutral name, because pydantic reserves some (`copy`, `json`) that an option may have.
        fields[f"option{i}"] = (
            Any if bare else parameter.annotation,
            Field(default, alias=parameter.name),
        )
    try:
        return _create(config, fields)
    except PydanticSchemaGenerationError:
        loose = {name: (Any, field) for name, (_, field) in fields.items()}
        return _create(config, loose)


def _create(config: "ConfigDict", fields: Mapping[str, Any]) -> "type[BaseModel]":
    from pydantic import create_model

    made: type[BaseModel] = create_model("Options", __config__=config, **fields)
    return made


def _parameters(factory: Factory) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(factory, eval_str=True)
    except NameError:  # an annotation that only a type checker can see
        signature = inspect.signature(factory)
    return list(signature.parameters.values())
