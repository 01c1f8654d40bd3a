"""Where the jars of a product come from, and what is said when they, or Java, are missing."""

from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError, UsageError
from targets import jars
from targets.hazelcast import Hazelcast
from targets.zookeeper import ZooKeeper

BOTH = pytest.mark.parametrize("factory", [Hazelcast, ZooKeeper])
# Maven as far as it is used here: puts the jar that the pom names first where it is told.
MVN = """#!/bin/sh
for word in "$@"; do case $word in
  -DoutputDirectory=*) folder=${word#*=};;
  */pom.xml) pom=$word;;
esac; done
mkdir -p "$folder"
case $(cat "$pom") in *hazelcast*) artifact=hazelcast;; *) artifact=zookeeper;; esac
echo jar >"$folder/$artifact-1.2.3.jar"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vanwinkle" / "released"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder on PATH; it has a java."""
    folder = tmp_path / "commands"
    folder.mkdir()
    script(folder / "java", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@BOTH
def test_missing_jars_are_told_with_the_command_that_fetches_them(
    factory: Any, cache: Path, commands: Path
) -> None:
    name = factory.name
    with pytest.raises(UsageError, match=f"python -m targets.jars {name} 1.2.3") as told:
        factory(version="1.2.3").servers()
    assert f"{name}[home=/path/to/{name}]" in str(told.value)


@BOTH
def test_a_missing_java_is_told(factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="no `java` on PATH; install a Java runtime"):
        factory().servers()
    with pytest.raises(UsageError, match="'/no/java' is no executable file"):
        factory(java="/no/java").servers()


@BOTH
@pytest.mark.parametrize("inner", ["", "lib"])
def test_a_folder_of_ones_own_is_a_class_path(
    factory: Any, inner: str, tmp_path: Path, commands: Path
) -> None:
    (tmp_path / inner).mkdir(exist_ok=True)
    own = tmp_path / inner / f"{factory.name}-9.9.9.jar"
    with pytest.raises(UsageError, match="there are no jars in"):
        factory(home=str(tmp_path)).servers()
    own.write_bytes(b"jar")
    argv = factory(home=str(tmp_path)).servers()[0].argv
    assert argv[argv.index("-cp") + 1] == f"{own.parent}/*"


@pytest.mark.parametrize("product", ["hazelcast", "zookeeper"])
def test_maven_fills_the_cache_once(
    product: str, cache: Path, commands: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mvn = commands / "mvn"
    script(mvn, MVN)
    assert jars.main([product, "1.2.3"]) == 0
    folder = cache / product / "1.2.3"
    assert capsys.readouterr().out == f"{folder}\n"
    assert [path.name for path in folder.iterdir()] == [f"{product}-1.2.3.jar"]
    assert [path.name for path in folder.parent.iterdir()] == ["1.2.3"]
    mvn.unlink()
    assert jars.get(product, "1.2.3") == folder
    assert jars.class_path(product, "1.2.3", None) == f"{folder}/*"


def test_a_fetch_that_fails_leaves_nothing_and_says_what_maven_said(
    cache: Path, commands: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(commands / "mvn", "#!/bin/sh\necho no such artifact\nexit 1\n")
    assert jars.main(["zookeeper", "1.2.3"]) == 255
    assert "mvn failed with 1:\n  no such artifact" in capsys.readouterr().err
    script(commands / "mvn", MVN.replace("1.2.3", "9.9.9"))
    with pytest.raises(HarnessError, match=r"mvn ended without zookeeper-1\.2\.3\.jar"):
        jars.get("zookeeper", "1.2.3")
    assert not list((cache / "zookeeper").iterdir())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["zookeeper"], "usage: python -m targets.jars PRODUCT VERSION"),
        (["etcd", "3.7.1"], "'etcd' is not published as jars; known: hazelcast, zookeeper"),
        (["zookeeper", "../x"], "'../x' is no version of zookeeper"),
    ],
)
def test_wrong_words_are_told(
    words: list[str], text: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jars.main(words) == 254
    assert text in capsys.readouterr().err


def test_without_maven_the_other_way_is_named(
    cache: Path, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(commands))
    with pytest.raises(UsageError, match=r"install Maven, or name a folder .*zookeeper\[home="):
        jars.get("zookeeper", "1.2.3")


@BOTH
def test_options(factory: Any) -> None:
    assert all(field.description for field in factory.Options.model_fields.values())
    with pytest.raises(ValueError, match="nodez"):
        factory(nodez=3)
