"""Products that are jars: where they are found, and how they get into the user's cache.

No wheel carries these servers, and no distribution has every release of them; Maven's own client
fetches any, with exactly the libraries that the release names.  They are kept in the cache beside
other released versions, as `$XDG_CACHE_HOME/vanwinkle/released/zookeeper/3.9.5/*.jar`; a folder of
that name appears whole or not at all.  A Java runtime must be on PATH: nothing here brings one.

    python -m targets.jars zookeeper 3.9.5
"""

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from harness.command import carry_out
from harness.errors import HarnessError, UsageError, WinkleError
from harness.released import place

FETCH_S = 900.0
_LINES_MAX = 8
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>vanwinkle</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)


@dataclass(frozen=True)
class Jars:
    """How a product is published: `artifacts` are `group:artifact:version`, its own one first.

    `{version}` in it is the product's.
    """

    product: str
    artifacts: Sequence[str]

    def of(self, version: str) -> list[tuple[str, str, str]]:
        """Return group, artifact and version of everything to ask for."""
        words = (artifact.format(version=version).split(":") for artifact in self.artifacts)
        return [(group, artifact, wanted) for group, artifact, wanted in words]

    def own(self, version: str) -> str:
        """Return the name of the product's own jar."""
        _, artifact, wanted = self.of(version)[0]
        return f"{artifact}-{wanted}.jar"


PRODUCTS: Mapping[str, Jars] = MappingProxyType(
    {
        "hazelcast": Jars("hazelcast", ("com.hazelcast:hazelcast:{version}",)),
        # What it calls "provided" it cannot start without; and without a binding of slf4j a server
        # is silent, and says nothing about why it ended.
        "zookeeper": Jars(
            "zookeeper",
            (
                "org.apache.zookeeper:zookeeper:{version}",
                "io.dropwizard.metrics:metrics-core:4.1.12.1",
                "org.xerial.snappy:snappy-java:1.1.10.5",
                "org.slf4j:slf4j-simple:2.0.13",
            ),
        ),
    }
)


def find_java(product: str, chosen: str | None) -> str:
    """Return the path of a Java runtime; `chosen` is the user's own.  Raises UsageError."""
    found = shutil.which(chosen or "java")
    if found is None:
        wanted = "no `java` on PATH" if chosen is None else f"{chosen!r} is no executable file"
        raise UsageError(
            f"{product}: {wanted}; install a Java runtime (on Debian and Ubuntu:"
            f" apt-get install default-jre-headless), or name one: {product}[java=/path/to/java]"
        )
    return found


def class_path(product: str, version: str, home: str | None) -> str:
    """Return the class path of a product: the user's own folder, or a version in the cache.

    A folder has jars, or a `lib` with jars, as the releases unpack.  Raises UsageError, which names
    the ways out.
    """
    if home is not None:
        own = Path(home).expanduser().absolute()
        folders = [folder for folder in (own, own / "lib") if any(folder.glob("*.jar"))]
        if not folders:
            raise UsageError(f"{product}: there are no jars in {own}, nor in its lib")
        return ":".join(f"{folder}/*" for folder in folders)
    folder = place(product, version)
    if not (folder / PRODUCTS[product].own(version)).is_file():
        raise UsageError(
            f"{product} {version} is not in {folder.parent}; fetch it with:"
            f" python -m targets.jars {product} {version}"
            f" (needs mvn), or name a folder of your own: {product}[home=/path/to/{product}]"
        )
    return f"{folder}/*"


def get(product: str, version: str) -> Path:
    """Return the folder with the jars of a version, fetched now if it is not in the cache.

    Raises UsageError (no such product, no Maven), HarnessError (it could not be fetched).
    """
    jars = PRODUCTS.get(product)
    if jars is None:
        raise UsageError(f"{product!r} is not published as jars; known: {', '.join(PRODUCTS)}")
    folder = place(product, version)
    if (folder / jars.own(version)).is_file():
        return folder
    mvn = shutil.which("mvn")
    if mvn is None:
        raise UsageError(
            f"{product} {version} is fetched by `mvn`, which is not on PATH: install Maven, or name"
            f" a folder with the jars: {product}[home=/path/to/{product}]"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{version}.part-", dir=folder.parent) as part:
            fetched = _fetch(mvn, jars, version, Path(part))
            if not (fetched / jars.own(version)).is_file():
                raise HarnessError(f"{product} {version}: mvn ended without {jars.own(version)}")
            shutil.rmtree(folder, ignore_errors=True)
            fetched.rename(folder)
    except OSError as error:
        raise HarnessError(f"{product} {version}: {error}") from error
    return folder


def _fetch(mvn: str, jars: Jars, version: str, part: Path) -> Path:
    pom, fetched = part / "pom.xml", part / "jars"
    pom.write_text(_POM.format("".join(_DEPENDENCY.format(*words) for words in jars.of(version))))
    argv = [mvn, "--quiet", "--batch-mode", "--file", str(pom), "dependency:copy-dependencies"]
    argv += ["-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
    name = f"{jars.product} {version}"
    done = carry_out(argv, FETCH_S)
    if done.code is None:
        raise HarnessError(f"{name}: mvn did not end within {FETCH_S:g} s")
    if done.code:
        first = "\n".join(f"  {line}" for line in done.lines[:_LINES_MAX])
        raise HarnessError(f"{name}: mvn failed with {done.code}:\n{first}")
    return fetched


def main(words: Sequence[str]) -> int:
    """Fetch what is named, print its folder, and return the exit code."""
    if len(words) != 2:
        print("usage: python -m targets.jars PRODUCT VERSION", file=sys.stderr)  # noqa: T201 - a command
        return 254
    try:
        print(get(*words))  # noqa: T201 - as above
    except WinkleError as error:
        print(error, file=sys.stderr)  # noqa: T201 - as above
        return 254 if isinstance(error, UsageError) else 255
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
