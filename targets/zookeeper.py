"""ZooKeeper 3.5 and later, as lock service and as store.

A lock is a queue of ephemeral sequential nodes; the lowest one holds.  Such a node lives as long as
the *session* that made it, and a session ends when the leader has heard nothing of it for its
time-out, rounded up to a tick, on the leader's monotonic clock.  A new leader gives every session
its full time-out again.  The client library keeps a session alive by itself, from a thread of its
own; a follower that is told so tells the leader half a tick later.  The fencing token is the
`czxid` of the lock's node: the number of the transaction that made it, agreed by the ensemble, so a
later grant of any lock has a greater one, across restarts.

What a client believes is what its library says of the session: kazoo reports SUSPENDED when the
connection breaks, and LOST only when a server has answered that the session is over.  With
`trust=connected` a client gives up at SUSPENDED, as its documentation asks for; with
`trust=session` it goes on until LOST, which a client that is cut off never hears.

As store, a plain `setData` takes every write.  `fence=guarded` puts a check of the lock's node into
the same transaction, so a stale owner is refused by the order in which its lock was given away;
that works only where ZooKeeper is also the lock service.  `fence=checked` keeps the highest token
in the node and writes with a compare-and-set on the node's version.

A read is answered by the server that is asked, and may be old; `sync` before it brings that server
up to date.
"""

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.target import Cluster, ErrorRule, LockClient, Place, Server, StoreClient
from targets import jars
from targets._binary import IMAGE, one_of
from targets._no_effect import ChangedMeanwhileError, NotAskedError, NotConnectedError

CLIENT_PORT = 2181
TICK_MS = 500
PROBE_TIMEOUT_S = 0.5
VERSION = "3.9.5"
_WORDS = "srvr,ruok"
_START = str(Path(__file__).with_name("_zookeeper_server.py"))
_JVM = (
    "-Xmx192m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # quick to start, and it runs for a minute
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeper:
    """A ZooKeeper ensemble, `zookeeper1`..`zookeeperN`: ephemeral nodes, with czxids as tokens."""

    name = "zookeeper"

    class Options(BaseModel):
        """Options of the target `zookeeper`."""

        model_config = ConfigDict(extra="forbid")

        nodes: int = Field(3, ge=1, le=9, description="servers of the ensemble")
        version: str = Field(
            VERSION, description="a released version, fetched by `python -m targets.jars`"
        )
        home: str | None = Field(
            None, description="folder with the jars of a ZooKeeper of your own"
        )
        java: str | None = Field(None, description="path of a Java runtime of your own")
        image: str | None = Field(None, description=f"{IMAGE}, set by variables as the official is")
        trust: Literal["connected", "session"] = Field(
            "connected",
            description="as lock: what a client takes for held: until its connection breaks, or"
            " until a server says that its session is over",
        )
        fence: Literal["none", "checked", "guarded"] = Field(
            "none",
            description="as store: take every write, refuse a lower token, or accept a write only"
            " while ZooKeeper holds its token",
        )
        sync: bool = Field(default=True, description="as store: bring the server up to date first")
        fsync: bool = Field(default=True, description="wait for the disk (false: faster, unsafe)")

        @model_validator(mode="after")
        def _one_source(self) -> Self:
            one_of(home=self.home, image=self.image)
            return self

    errors: Sequence[ErrorRule] = (
        ErrorRule(
            "not connected",
            "the session had no connection, or none could be made in time: no request was sent",
            lambda error: isinstance(error, NotConnectedError),
        ),
        ErrorRule(
            "not asked",
            "only a read was tried, and that takes no lock",
            lambda error: isinstance(error, NotAskedError),
        ),
        ErrorRule(
            "changed meanwhile",
            "the server refused the version, and it applies a request whole or not at all",
            lambda error: isinstance(error, ChangedMeanwhileError),
        ),
    )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self.fence = self.options.fence

    def servers(self) -> Sequence[Server]:
        """The ensemble.  Raises UsageError where the jars or a Java runtime are missing."""
        options = self.options
        if options.image is not None:
            return self._contained(options.image)
        java = jars.find_java(self.name, options.java)
        path = jars.class_path(self.name, options.version, options.home)
        numbers = range(1, options.nodes + 1)
        settings = {
            "tickTime": TICK_MS,
            "initLimit": 40,
            "syncLimit": 10,
            "minSessionTimeout": TICK_MS,
            "dataDir": "{data}",
            "clientPort": CLIENT_PORT,
            "clientPortAddress": "{address}",
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": _WORDS,
            "forceSync": "yes" if options.fsync else "no",
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        if options.nodes > 1:  # a single one runs without elections
            lines += [f"server.{n}={{peer[zookeeper{n}]}}:2888:3888" for n in numbers]
        start = [sys.executable, "-I", "-S", _START, "\n".join(lines)]
        become = [java, *_JVM, "-cp", path, _MAIN, "{data}/zoo.cfg"]
        return [Server(f"zookeeper{n}", [*start, str(n), *become], CLIENT_PORT) for n in numbers]

    def _contained(self, image: str) -> Sequence[Server]:
        """Return the ensemble as the variables of the official image describe it."""
        numbers = range(1, self.options.nodes + 1)
        ports = f"2888:3888;{CLIENT_PORT}"
        settings = {
            "ZOO_SERVERS": " ".join(f"server.{n}={{peer[zookeeper{n}]}}:{ports}" for n in numbers),
            "ZOO_DATA_DIR": "{data}",
            "ZOO_DATA_LOG_DIR": "{data}",
            "ZOO_TICK_TIME": str(TICK_MS),
            "ZOO_INIT_LIMIT": "40",
            "ZOO_SYNC_LIMIT": "10",
            "ZOO_MAX_CLIENT_CNXNS": "0",
            "ZOO_ADMINSERVER_ENABLED": "false",
            "ZOO_4LW_COMMANDS_WHITELIST": _WORDS,
            "ZOO_CFG_EXTRA": f"forceSync={'yes' if self.options.fsync else 'no'}",
            "JVMFLAGS": " ".join(_JVM),
        }
        argv = ("zkServer.sh", "start-foreground")
        return [
            Server(
                f"zookeeper{n}",
                argv,
                CLIENT_PORT,
                env={**settings, "ZOO_MY_ID": str(n)},
                image=image,
            )
            for n in numbers
        ]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client (imports kazoo)."""
        from targets._zookeeper_client import ZooKeeperLock

        return ZooKeeperLock(_hosts(cluster), timeout_s, patient=self.options.trust == "session")

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Make a store client (imports kazoo)."""
        from targets._zookeeper_client import ZooKeeperStore

        return ZooKeeperStore(
            _hosts(cluster), timeout_s, self.options.fence, sync=self.options.sync
        )

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when every server serves, which each does with a majority only."""
        for place in cluster.places:
            if _mode(place) is None:
                return f"{place.name} does not serve"
        return None

    def answers(self, place: Place) -> str | None:
        """Return None when the process answers, with or without a majority behind it."""
        return None if _ask(place, b"ruok") == "imok" else f"{place.name} does not answer"

    def leader(self, cluster: Cluster) -> str | None:
        """Return the server that calls itself leader; a server alone is its own."""
        leading = (place.name for place in cluster.places if _mode(place) in _LEADING)
        return next(leading, None)

    def version(self) -> str:
        """Return the version of the jars: of the cache, or as the user's own folder names them."""
        if self.options.image is not None:
            return f"zookeeper of {self.options.image}"
        if self.options.home is None:
            return f"zookeeper {self.options.version}"
        own = Path(self.options.home).expanduser()
        found = sorted(path.stem for path in own.glob("**/zookeeper-[0-9]*.jar"))
        return found[0] if found else f"zookeeper of {own}"


_LEADING = ("leader", "standalone")


def _hosts(cluster: Cluster) -> str:
    return ",".join(place.endpoint for place in cluster.places)


def _mode(place: Place) -> str | None:
    """Return leader, follower or standalone, None while the server does not serve."""
    for line in _ask(place, b"srvr").splitlines():
        if line.startswith("Mode: "):
            return line.removeprefix("Mode: ")
    return None


def _ask(place: Place, word: bytes) -> str:
    """Return what a server says to a word of four letters, nothing when it does not answer."""
    said = b""
    try:
        with socket.create_connection((place.address, place.port), PROBE_TIMEOUT_S) as probe:
            probe.sendall(word)
            while more := probe.recv(4096):
                said += more
    except OSError:
        return ""
    return said.decode(errors="backslashreplace")
