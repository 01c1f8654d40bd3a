"""`winkle get`: released versions of products, built into the user's cache, or listed."""

from collections.abc import Sequence

import msgspec

from harness import plugins
from harness.errors import HarnessError, UsageError
from harness.mistakes import unknown
from harness.released import Built, HasReleases, Releases, listed, place, released_folder
from harness.terminal import err, out, paint, printable, table


def get(wanted: Sequence[str], *, as_json: bool) -> int:
    """Build what is wanted and not there yet; list the cache when nothing is.

    Raises UsageError before anything is built, HarnessError when a build failed.
    """
    from harness.building import get as build

    failed = []
    for releases, version in [_read(word) for word in wanted]:
        try:
            path = build(releases, version, lambda text: err(printable(text)))
        except (HarnessError, UsageError) as error:
            failed.append(error)
            continue
        if not as_json:
            out(str(path))
    if failed:
        kind = UsageError if all(isinstance(e, UsageError) for e in failed) else HarnessError
        raise kind("\n".join(str(error) for error in failed))
    if as_json or not wanted:
        _list(as_json=as_json)
    return 0


def _read(word: str) -> tuple[Releases, str]:
    """Return what `etcd@3.7.1` names.  Raises UsageError."""
    product, at, version = word.partition("@")
    version = version.removeprefix("v")
    known = {name: made for name in plugins.entries("targets") if (made := _releases(name))}
    if product not in known:
        raise UsageError(unknown("product", product, known))
    if not at:
        raise UsageError(f"{word}: which version? Write it like {product}@3.7.1")
    place(product, version)
    known[product].module(version)
    return known[product], version


def _releases(target: str) -> Releases | None:
    try:
        factory = plugins.factory("targets", target)
    except plugins.PluginError:
        return None
    return factory.releases if isinstance(factory, HasReleases) else None


def _list(*, as_json: bool) -> None:
    found = listed()
    if as_json:
        records = [{**msgspec.to_builtins(one), "whole": whole} for one, whole in found]
        out(msgspec.json.format(msgspec.json.encode(records), indent=2).decode())
        return
    if not found:
        out(f"nothing is in {released_folder()} yet; get a version with: winkle get etcd@3.7.1")
        return
    header, *rows = table(
        ("version", "size", "built", "with", "program"), [_row(*f) for f in found]
    )
    out(paint(header, "bold"))
    for row in rows:
        out(row)


def _row(one: Built, whole: bool) -> tuple[str, ...]:
    path = place(one.product, one.version) / one.command
    return (
        f"{one.product}@{one.version}",
        f"{one.size / 1e6:.0f} MB",
        one.built,
        printable(one.go),
        str(path) if whole else "damaged; get it again",
    )
