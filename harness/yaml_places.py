"""YAML as data with the line and column of every key and value.

Only plain data is read: no tags, so nothing can be constructed.  YAML 1.1 reads some bare words as
something else (`no` is false, `1:30` is ninety, `2024-01-01` a date); the last two stay texts here,
and the first is kept beside the value so that a message can say what happened.  Aliases are data
too, but a file that unfolds to more than `NODES_MAX` values is refused.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from harness.errors import UsageError
from harness.mistakes import Mistake, Path, dotted, show

NODES_MAX = 20_000
_TAG = "tag:yaml.org,2002:"
_SURPRISING = {"yes", "no", "on", "off"}


@dataclass(frozen=True)
class Place:
    """A position, 1-based; `word` is the bare word that YAML read as a boolean, if it was one."""

    line: int
    column: int
    word: str | None = None


@dataclass
class Document:
    """A file as data: `value`, where its keys and values stand, and what is wrong with the YAML."""

    source: str
    value: Any = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    mistakes: list[tuple[Place, Mistake]] = field(default_factory=list)
    nodes: int = 0

    def place(self, mistake: Mistake) -> Place:
        """Where a mistake is: at its path, or at what stands nearest above it in the file."""
        path = mistake.path
        if mistake.at_key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, Place(1, 1))

    def line(self, place: Place, mistake: Mistake) -> str:
        """Return the message of one mistake: `file:line:col: path: text`."""
        where = f"{self.source}:{place.line}:{place.column}: "
        path = f"{dotted(mistake.path)}: " if mistake.path else ""
        advice = ""
        if place.word and not mistake.at_key and self.values.get(mistake.path) == place:
            advice = (
                f' (YAML reads the bare word {place.word} as a boolean; write "{place.word}" in'
                " quotes if you mean the text)"
            )
        return f"{where}{path}{mistake.text}{advice}"


def read_yaml(data: bytes | str, source: str) -> Document:
    """Read one YAML document; `mistakes` holds what is wrong in it.  Raises UsageError."""
    document = Document(source)
    text = data if isinstance(data, str) else _decode(data, source)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            document.value = _walk(document, root, ())
    except yaml.MarkedYAMLError as error:
        raise UsageError(_syntax(error, source)) from error
    except yaml.reader.ReaderError as error:
        line, column = _position(text, error.position)
        raise UsageError(
            f"{source}:{line}:{column}: found the character U+{ord(text[error.position]):04X};"
            " allowed: printable text"
        ) from error
    except RecursionError:
        raise UsageError(f"{source}: nested too deeply for a run file") from None
    return document


def report(
    document: Document | None,
    mistakes: Sequence[Mistake],
    flag_line: Callable[[Mistake], str | None] = lambda _: None,
) -> list[str]:
    """Return one line a mistake in the order of the file; those of flags come last."""
    placed: list[tuple[Place, str]] = []
    loose: list[str] = []
    broken: set[Path] = set()
    if document is not None:
        broken = {mistake.path for _, mistake in document.mistakes if not mistake.at_key}
    for mistake in mistakes:
        line = flag_line(mistake)
        if line is None and document is not None:
            if mistake.path in broken:
                continue  # the YAML itself is wrong there, and that is already said
            place = document.place(mistake)
            placed.append((place, document.line(place, mistake)))
        else:
            loose.append(line or _bare_line(mistake))
    if document is not None:
        placed += [(place, document.line(place, mistake)) for place, mistake in document.mistakes]
    placed.sort(key=lambda item: (item[0].line, item[0].column))
    return [line for _, line in placed] + loose


def _bare_line(mistake: Mistake) -> str:
    return f"{dotted(mistake.path)}: {mistake.text}" if mistake.path else mistake.text


def _decode(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        raise UsageError(
            f"{source}:{line}:{column}: found the byte 0x{data[error.start]:02x};"
            " allowed: UTF-8 text"
        ) from error


def _position(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1


def _syntax(error: yaml.MarkedYAMLError, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    if error.context == "expected a single document in the stream":
        return f"{where}: found a second document (`---`); allowed: one document a file"
    context = f" {error.context}" if error.context else ""
    return f"{where}: no valid YAML: {error.problem}{context}"


def _walk(document: Document, node: yaml.Node, path: Path) -> Any:
    document.nodes += 1
    if document.nodes > NODES_MAX:
        raise UsageError(
            f"{document.source}: more than {NODES_MAX} values; aliases unfold to too much"
        )
    place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
    document.values[path] = place
    if isinstance(node, yaml.MappingNode):
        return _mapping(document, node, path)
    if isinstance(node, yaml.SequenceNode):
        return [_walk(document, child, (*path, i)) for i, child in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    value, complaint = _scalar(node)
    if complaint:
        document.mistakes.append((place, Mistake(path, complaint)))
    if isinstance(value, bool) and node.value.lower() in _SURPRISING:
        document.values[path] = Place(place.line, place.column, node.value)
    return value


def _mapping(document: Document, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place = Place(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        if not isinstance(key_node, yaml.ScalarNode) or not isinstance(_scalar(key_node)[0], str):
            spelled = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a collection"
            complaint = (
                f"found the key {show(spelled)}, which YAML does not read as text; allowed: a name"
            )
            document.mistakes.append((place, Mistake(path, complaint, at_key=True)))
            continue
        key = key_node.value
        here = (*path, key)
        if key in found:
            first = document.keys[here]
            complaint = f"found twice, first in line {first.line}; allowed: once"
            document.mistakes.append((place, Mistake(here, complaint, at_key=True)))
            continue
        document.keys[here] = place
        found[key] = _walk(document, value_node, here)
    return found


def _scalar(node: yaml.ScalarNode) -> tuple[Any, str | None]:
    """Return the value of a scalar, and what is wrong with it."""
    text = node.value
    match node.tag.removeprefix(_TAG):
        case "null":
            return None, None
        case "bool" if text.lower() in yaml.SafeLoader.bool_values:
            return yaml.SafeLoader.bool_values[text.lower()], None
        case "int" | "float" if ":" not in text:
            return _number(node)
        case "str" | "int" | "float" | "timestamp" | "merge" | "value":
            return text, None
        case _:
            return text, f"found the tag {show(node.tag)}; allowed: plain values without tags"


def _number(node: yaml.ScalarNode) -> tuple[Any, str | None]:
    reader = yaml.SafeLoader("")
    whole = node.tag == f"{_TAG}int"
    try:
        value = reader.construct_yaml_int(node) if whole else reader.construct_yaml_float(node)
    except ValueError:
        return node.value, f"found {show(node.value)}; allowed: a number"
    if whole and abs(value) >= 1 << 64:  # Python refuses to show thousands of digits
        return node.value, "found a number of more than 64 bits; allowed: a smaller one"
    if not whole and not math.isfinite(value):
        return node.value, f"found {show(node.value)}; allowed: a finite number"
    return value, None
