"""Finding targets, faults, workloads and reports, and making them from options.

A name is an entry point; `pkg.mod:attr` and `./file.py:attr` are as good as a name, so that an own
target needs no packaging.  Whatever is wrong with a plug-in or its options is the user's to correct
and comes as a UsageError in plain words.  Entry points are read only when a command needs them.
"""

import importlib
import importlib.util
import re
import sys
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness import options as plugin_options
from harness.errors import UsageError
from harness.mistakes import Mistake, dotted, nearest, show, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["targets", "faults", "workloads", "reports"]
_SIBLINGS = ("targets", "nemesis", "workloads", "reports")
_FILE = re.compile(r"(?P<path>.+\.py):(?P<attr>[A-Za-z_]\w*)\Z", re.DOTALL)
_IMPORT = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.\w+)*):(?P<attr>[A-Za-z_]\w*)\Z")


class PluginError(UsageError):
    """A plug-in that cannot be made: `mistakes` have the path () or ("options", NAME, ...)."""

    def __init__(self, what: str, mistakes: list[Mistake]) -> None:
        self.mistakes = mistakes
        super().__init__(
            "\n".join(
                f"{what}: {dotted(m.path)}: {m.text}" if m.path else f"{what}: {m.text}"
                for m in mistakes
            )
        )


@dataclass(frozen=True)
class Description:
    """One plug-in for `winkle list`; `trouble` says why it cannot be loaded."""

    name: str
    text: str
    options: list[plugin_options.Option]
    trouble: str | None = None


def guard_origin(names: Iterable[str] = _SIBLINGS) -> None:
    """Stop when another distribution's package shadows one of ours.  Raises UsageError.

    The import names are common words, and pip lets packages overwrite or hide each other silently.
    """
    ours = Path(__file__).resolve().parent.parent
    for name in names:
        found = importlib.util.find_spec(name)
        places = list(found.submodule_search_locations or []) if found else []
        actual = Path(places[0]).resolve() if places else None
        if actual == ours / name:
            continue
        seen = f"at {actual}" if actual else (found.origin if found else "missing")
        raise UsageError(
            f"the package `{name}` is {seen}, but ours is {ours / name}: run winkle in an"
            " environment of its own (pipx, uv tool install) or with `python -P -m harness.cli`"
        )


def entries(kind: Kind) -> "dict[str, EntryPoint]":
    """Return the entry points of a kind by name.  Raises UsageError when two claim one name."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=f"vanwinkle.{kind}"):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise UsageError(
                f"two packages provide the {kind[:-1]} {entry.name}: {other.value} and"
                f" {entry.value}; write the one that you mean as module:attribute"
            )
    return dict(sorted(found.items()))


def factory(kind: Kind, name: str) -> plugin_options.Factory:
    """Return the factory that `name` stands for.  Raises PluginError."""
    what = f"{kind[:-1]} {name}"
    if match := _FILE.match(name):
        made = _attribute(what, _load_file(what, Path(match["path"])), match["attr"])
    elif (match := _IMPORT.match(name)) and match["module"] not in entries(kind):
        made = _attribute(what, _import(what, match["module"]), match["attr"])
    else:
        made = _load_entry(kind, name)
    if not callable(made):
        raise _wrong(
            what, f"found {show(made)}; allowed: something that can be called with options"
        )
    return made  # type: ignore[no-any-return]  # callable() does not narrow Any


def make(kind: Kind, name: str, options: Mapping[str, Any]) -> Any:
    """Return the plug-in made from its options.  Raises PluginError with every mistake."""
    what = f"{kind[:-1]} {name}"
    build = factory(kind, name)
    arguments, mistakes = plugin_options.validate(build, options)
    if mistakes:
        raise PluginError(what, [mistake.under("options") for mistake in mistakes])
    try:
        return build(**arguments)
    except PluginError:
        raise
    except BaseException as error:
        raise _wrong(what, f"cannot be made: {_sentence(error)}") from error


def make_target(name: str, options: Mapping[str, Any]) -> Any:
    """Return a target made from its options.  Raises PluginError."""
    return make("targets", name, options)


def describe(kind: Kind) -> list[Description]:
    """Return what there is of a kind, with the options of each."""
    return [_describe(kind, name) for name in entries(kind)]


def _describe(kind: Kind, name: str) -> Description:
    try:
        found = factory(kind, name)
        text = (found.__doc__ or "").strip().split("\n", 1)[0]
        shown = [] if kind == "reports" else plugin_options.describe(found)
    except PluginError as error:
        return Description(name, "", [], error.mistakes[0].text)
    return Description(name, text, shown)


def _load_entry(kind: Kind, name: str) -> Any:
    known = entries(kind)
    what = f"{kind[:-1]} {name}"
    if name in known:
        try:
            return known[name].load()
        except BaseException as error:
            raise _wrong(what, f"cannot be loaded: {_sentence(error)}{_extra(name)}") from error
    stem, colon, _ = name.partition(":")
    if colon and stem in known:
        raise _wrong(what, f"found {show(name)}; allowed: {stem}, its options as option=value")
    more = ", or module:attribute, or ./file.py:attribute"
    raise _wrong(what, unknown(kind[:-1], name, known) + more)


def _extra(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        extras = metadata("vanwinkle").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return ""
    return f" (pip install '.[{name}]' in the checkout of vanwinkle)" if name in extras else ""


def _load_file(what: str, path: Path) -> Any:
    resolved = path.expanduser().resolve()
    name = f"vanwinkle_file_{resolved.stem}_{zlib.crc32(str(resolved).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    if not resolved.is_file():
        raise _wrong(what, f"there is no file {path} (looked at {resolved})")
    spec = importlib.util.spec_from_file_location(name, resolved)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickling look it up
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _wrong(what, f"{path} cannot be loaded: {_sentence(error)}") from error
    return module


def _import(what: str, module: str) -> Any:
    # A console script does not see the folder it is started in.  It goes last, so that a user's
    # folder named like one of our packages cannot hide ours.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except BaseException as error:
        raise _wrong(what, f"{module} cannot be imported: {_sentence(error)}") from error


def _attribute(what: str, module: Any, name: str) -> Any:
    if hasattr(module, name):
        return getattr(module, name)
    public = [word for word in vars(module) if not word.startswith("_")]
    raise _wrong(what, f"nothing there is named {name}; {nearest(name, public)}".rstrip("; "))


def _sentence(error: BaseException) -> str:
    text = str(error).strip() or "no message"
    return text if isinstance(error, UsageError) else f"{type(error).__name__}: {text}"


def _wrong(what: str, text: str) -> PluginError:
    return PluginError(what, [Mistake((), text)])
