"""EDN, the notation of Clojure, read form by form from a stream.

Only what histories hold is kept apart: keywords (`Keyword`), text, numbers, booleans, nil, and the
collections; sets and lists become lists.  A tag says nothing about an event, so `#tag form` is the
form.  A file that is one vector or list is read element by element, so that its size does not
matter; a form that never ends, or ends twice, is refused with the line where it begins.
"""

import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from harness.errors import MalformedHistoryError
from harness.importing.source import ATOM_MAX

DEPTH_MAX, WORDS_MAX = 64, 1_000_000
_CHUNK = 1 << 18
_SPACE = re.compile(r"(?:[\s,]+|;[^\n]*(?:\n|\Z))*")
_TOKEN = re.compile(
    r'#?"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # text, or a regular expression
    r"|\\(?:[A-Za-z]\w*|.)"  # a character
    r"|\#_|\#\{|[\[\](){}^]"
    r"|[^\s,;\"\[\](){}]+",
    re.DOTALL,
)
# A map as histories have them: keywords, and atoms or vectors of atoms.  Ten times as fast.
_KEY, _WORD = r":[^\s,;\"\[\](){}^\\#]+", r"[^\s,;\"\[\](){}^\\#][^\s,;\"\[\](){}]*"
_VALUE = rf'{_WORD}|"[^"\\]*"|\[(?:{_WORD}|[\s,]+)*+\]'
_FLAT = re.compile(rf"\{{\s*+{_KEY}\s++(?:{_VALUE})(?:[\s,]++{_KEY}\s++(?:{_VALUE}))*+[\s,]*+\}}")
_PAIR = re.compile(rf"({_KEY})\s+({_VALUE})")
_CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_NAMED = {"nil": None, "true": True, "false": False}
_INTEGER = re.compile(r"([+-]?\d+)N?")
_FLOAT = re.compile(r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)M?")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_DIGITS_MAX = 1000
_CACHE_MAX, _CACHED_MAX = 10_000, 40
# How many forms a prefix takes: the one thrown away; the remark and what it is about; the tagged.
_TAKES = {"#_": 1, "^": 2, "#": 1}
_NOTHING = object()


class Keyword(str):
    """A keyword without its colon."""

    __slots__ = ()


@dataclass(slots=True)
class _Open:
    """A collection or a prefix that has begun and not ended."""

    sign: str
    items: list[Any] = field(default_factory=list)


def forms(stream: IO[bytes], *, unwrap: bool) -> Iterator[tuple[int, Any]]:
    """Yield each form with the line where it begins.  Raises MalformedHistoryError.

    `unwrap`: when the first form is a vector or list, its elements are the forms.
    """
    text = _Text(stream)
    atoms: dict[str, Any] = {}
    stack: list[_Open] = []
    began, words, wrapped, first = 1, 0, "", True
    try:
        while True:
            if not stack and wrapped != "over" and (flat := text.flat()) is not None:
                first = False
                yield text.line, _flat_map(flat, atoms)
                continue
            if (token := text.token()) is None:
                break
            if not stack:
                began, words = text.line, 0
                if wrapped == "over":
                    raise MalformedHistoryError(began, "something follows the end of the history")
                if unwrap and first and token in ("[", "("):
                    wrapped, first = _CLOSING[token], False
                    continue
                if token == wrapped:
                    wrapped = "over"
                    continue
            first = False
            words += 1
            if words > WORDS_MAX:
                raise MalformedHistoryError(began, f"the form here has more than {WORDS_MAX} words")
            value = _take(token, stack, atoms, text.line)
            if value is not _NOTHING:
                value = _deliver(stack, value)
            if value is not _NOTHING:
                yield began, value
        if stack or wrapped not in ("", "over"):
            raise MalformedHistoryError(began, "the form that begins here never ends")
    finally:
        text.detach()


def _flat_map(text: str, atoms: dict[str, Any]) -> dict[str, Any]:
    """Return a map whose text was recognised as a flat one."""
    made = {}
    find = atoms.get
    for name, value in _PAIR.findall(text):
        known = find(value, _NOTHING)
        if known is _NOTHING:
            if value[0] == "[":
                known = [_atom(word, 0) for word in value[1:-1].replace(",", " ").split()]
            elif len(value) < 19 and value.isdecimal() and value.isascii():
                known = int(value)  # a time, an index: not worth remembering
            else:
                known = _atom(value, 0)
            _remember(atoms, value, known)
        key = find(name)
        if key is None:
            key = Keyword(name[1:])
            _remember(atoms, name, key)
        made[key] = known
    return made


def _remember(atoms: dict[str, Any], text: str, form: Any) -> None:
    if len(atoms) < _CACHE_MAX and len(text) < _CACHED_MAX:
        atoms[text] = form


def plain(form: Any) -> Any:
    """Return a form as a value of JSON; a keyword is text that begins with its colon."""
    if isinstance(form, Keyword):
        return ":" + form
    if isinstance(form, list):
        return [plain(item) for item in form]
    if isinstance(form, dict):
        return {_label(key): plain(item) for key, item in form.items()}
    return form


def _label(key: Any) -> str:
    return str(plain(key))


def _take(token: str, stack: list[_Open], atoms: dict[str, Any], line: int) -> Any:
    """Take a token: return the form that it ends, or nothing yet."""
    if token in _CLOSING or token in ("#_", "^"):
        stack.append(_Open(token))
    elif token in ("]", ")", "}"):
        return _close(token, stack, line)
    elif token[0] == "#" and token[1:2].isalpha():
        stack.append(_Open("#"))
    else:
        value = atoms.get(token, _NOTHING)
        if value is _NOTHING:
            value = _atom(token, line)
            _remember(atoms, token, value)
        return value
    if len(stack) > DEPTH_MAX:
        raise MalformedHistoryError(line, f"nested more than {DEPTH_MAX} deep")
    return _NOTHING


def _close(token: str, stack: list[_Open], line: int) -> Any:
    if not stack or _CLOSING.get(stack[-1].sign) != token:
        raise MalformedHistoryError(line, f"`{token}` closes nothing")
    done = stack.pop()
    if done.sign != "{":
        return done.items
    if len(done.items) % 2:
        raise MalformedHistoryError(line, "a map with a key that has no value")
    keys = [key if isinstance(key, str | int) else str(plain(key)) for key in done.items[::2]]
    return dict(zip(keys, done.items[1::2], strict=True))


def _deliver(stack: list[_Open], value: Any) -> Any:
    """Hand a form to what is open; return it when nothing is."""
    while stack:
        top = stack[-1]
        top.items.append(value)
        if len(top.items) != _TAKES.get(top.sign):
            return _NOTHING
        stack.pop()
        if top.sign == "#_":
            return _NOTHING
    return value


def _atom(token: str, line: int) -> Any:
    if token.isdecimal() and token.isascii() and len(token) <= _DIGITS_MAX:
        return int(token)
    head = token[0]
    if head == '"':
        return _ESCAPE.sub(_unescape, token[1:-1]) if "\\" in token else token[1:-1]
    if head == ":" and len(token) > 1:
        return Keyword(token[1:])
    if token in _NAMED:
        return _NAMED[token]
    if len(token) > _DIGITS_MAX and head in "+-0123456789":
        raise MalformedHistoryError(line, f"a number of {len(token)} digits")
    if (number := _INTEGER.fullmatch(token)) is not None:
        return int(number[1])
    if (number := _FLOAT.fullmatch(token)) is not None and math.isfinite(float(number[1])):
        return float(number[1])
    return token


def _unescape(match: re.Match[str]) -> str:
    what = match[1]
    if len(what) == 1:
        return _ESCAPES.get(what, what)
    # Half of a surrogate pair is no text, and could not be written down again.
    return chr(int(what[1:], 16)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Text:
    """The text of a stream, seen through a window that moves on."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = io.TextIOWrapper(stream, "utf-8", errors="backslashreplace", newline="\n")
        self._buffer = ""
        self._at = 0
        self._counted = 0
        self._over = False
        self.line = 1

    def detach(self) -> None:
        """Leave the stream open for whoever opened it."""
        self._stream.detach()

    def token(self) -> str | None:
        """Return the next token, None at the end; `line` is then where it begins."""
        while True:
            space = _SPACE.match(self._buffer, self._at)
            assert space is not None  # it matches nothing, too
            start = space.end()
            token = _TOKEN.match(self._buffer, start)
            if token is not None and (self._over or token.end() < len(self._buffer)):
                self._count(start)
                self._at = token.end()
                return token[0]
            if self._over:
                self._count(start)
                if start == len(self._buffer):
                    return None
                raise MalformedHistoryError(self.line, "the text that begins here never ends")
            self._refill()

    def flat(self) -> str | None:
        """Return the text of a flat map, where the next form is one; `line` is where it begins."""
        space = _SPACE.match(self._buffer, self._at)
        assert space is not None  # it matches nothing, too
        found = _FLAT.match(self._buffer, space.end())
        if found is None:
            return None
        self._count(found.start())
        self._at = found.end()
        return found[0]

    def _count(self, until: int) -> None:
        self.line += self._buffer.count("\n", self._counted, until)
        self._counted = until

    def _refill(self) -> None:
        self._count(self._at)
        rest = self._buffer[self._at :]
        if len(rest) > ATOM_MAX:
            raise MalformedHistoryError(self.line, f"no token ends within {ATOM_MAX >> 20} MB")
        more = self._stream.read(max(_CHUNK, len(rest)))
        self._over = not more
        self._buffer, self._at, self._counted = rest + more, 0, 0
