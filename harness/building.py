"""Builds a released version of a product from the Go module proxy, into the user's cache.

`go install module@version` refuses modules with replace directives, as etcd's are.  An empty module
that requires the released one has no such trouble: `go get` pins exactly the dependencies that the
release names, and `go build` makes its program, without cgo and so without any library.

All of it happens in a folder of its own beside the place where it will lie; only a program that
says that it is the wanted release is moved there, by one rename.  Whoever builds holds a lock that
the kernel drops when he dies; the next one sweeps what he left.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from harness import released
from harness.command import carry_out
from harness.errors import HarnessError, UsageError
from harness.released import RECORD, Built, Releases, first_line

FETCH_S = 900.0
BUILD_S = 3600.0
_LINES_MAX = 8
# Where the tool chain's own installer puts it, for a PATH (sudo's, cron's) that leaves it out.
_USUAL_GO = "/usr/local/go/bin/go"
_NO_SUCH = (
    "unknown revision",
    "404 not found",
    "410 gone",
    "invalid version",
    "no matching",
    "module version is not available",
)
_NO_NETWORK = (
    "no such host",
    "dial tcp",
    "connection refused",
    "i/o timeout",
    "tls handshake",
    "proxyconnect",
    "module lookup disabled",
    "network is unreachable",
)

Say = Callable[[str], None]


def get(releases: Releases, version: str, say: Say) -> Path:
    """Return the program of a released version, built now if it is not in the cache.

    `say` is told what goes on.  Raises UsageError (no Go, no such version), HarnessError (no
    network, the build failed).
    """
    name = f"{releases.product} {version}"
    folder = released.place(releases.product, version)
    module = releases.module(version)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder, lambda: say(f"{name}: another winkle builds it; waiting")):
            found = released.binary(releases.product, version)
            if found is not None:
                say(f"{name}: already there")
                return found
            if folder.exists():
                say(f"{name}: what lies there is damaged; it is built again")
            return _build(releases, version, module, folder, lambda text: say(f"{name}: {text}"))
    except OSError as error:
        raise HarnessError(f"{name}: {error}") from error


def find_go() -> str | None:
    """Return the path of a Go tool chain, None where there is none."""
    return shutil.which("go") or shutil.which(_USUAL_GO)


@contextmanager
def _alone(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of one version, and sweep what a builder that died has left."""
    path = folder.with_name(f".{folder.name}.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(fd, fcntl.LOCK_EX)
        for left in folder.parent.glob(f".{folder.name}.part-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(fd)


def _build(releases: Releases, version: str, module: str, folder: Path, say: Say) -> Path:
    go = find_go()
    if go is None:
        product, command = releases.product, releases.command
        raise UsageError(
            f"{product} {version} is built from source, and no Go tool chain is found (looked for"
            f" `go` on PATH and {_USUAL_GO}): install Go, or name a program of your own with"
            f" {product}[binary=/path/to/{command}], or an image with --backend docker:"
            f" {product}[image=NAME]"
        )
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.part-", dir=folder.parent))
    try:
        source, whole = part / "source", part / "whole"
        source.mkdir()
        whole.mkdir()
        (source / "go.mod").write_text("module vanwinkle/released\n")
        name = f"{releases.product} {version}"
        say(f"fetching {module}")
        _go(go, ["get", module], source, FETCH_S, name)
        say("building; this takes a minute or more")
        began = time.monotonic()
        program = whole / releases.command
        package = module.partition("@")[0]
        words = ["build", "-trimpath", "-ldflags=-s -w", "-o", str(program), package]
        _go(go, words, source, BUILD_S, name)
        record = _verify(releases, version, module, program, go)
        (whole / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        if folder.exists():
            folder.rename(part / "damaged")
        whole.rename(folder)
        size_mb = record.size / 1e6
        say(f"built in {time.monotonic() - began:.0f} s: {program.name}, {size_mb:.0f} MB")
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder / releases.command


def _go(go: str, words: list[str], where: Path, bound_s: float, name: str) -> None:
    """Run the tool chain.  Raises UsageError (no such version) or HarnessError, with its words."""
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    for cross in ("GOOS", "GOARCH"):
        environment.pop(cross, None)  # it is to run here
    done = carry_out([go, *words], bound_s, cwd=where, env=environment)
    if done.code == 0:
        return
    if done.code is None:
        raise HarnessError(f"{name}: `go {words[0]}` did not end within {bound_s:g} s")
    tail = "\n".join(f"  {line.expandtabs(2)}" for line in done.lines[-_LINES_MAX:])
    text = "\n".join(done.lines).lower()
    if any(sign in text for sign in _NO_NETWORK):
        raise HarnessError(f"{name}: the Go module proxy cannot be reached:\n{tail}")
    if words[0] == "get" and any(sign in text for sign in _NO_SUCH):
        raise UsageError(f"{name}: there is no such release, or the proxy lacks it:\n{tail}")
    raise HarnessError(f"{name}: `go {words[0]}` failed with {done.code}:\n{tail}")


def _verify(releases: Releases, version: str, module: str, program: Path, go: str) -> Built:
    """Return the record of a program that says that it is the wanted release."""
    wanted = releases.says.format(version=version)
    said = first_line([str(program), "--version"])
    if said != wanted:
        name = f"{releases.product} {version}"
        raise HarnessError(f"{name}: what was built says {said!r} and not {wanted!r}")
    program.chmod(0o755)
    seen = program.stat()
    return Built(
        product=releases.product,
        version=version,
        command=releases.command,
        module=module,
        sha256=released.checksum(program, seen.st_mtime_ns),
        size=seen.st_size,
        says=said,
        go=first_line([go, "version"]),
        built=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
