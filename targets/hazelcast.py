"""Hazelcast 5.3, three or more members, as lock service and as store, over its CP subsystem.

The last line of Hazelcast with an open CP subsystem: later ones have it in the paid edition.  A
`FencedLock` belongs to a CP *session*, which ends when the leader of the Raft group has seen no
heartbeat of it for the time that the members are set up with (`session_ttl`), on that member's wall
clock, looked at once a second; a client cannot ask for another time.  The fencing token is the
lock's *fence*: the place of the grant in the group's Raft log, so a later grant of any lock has a
greater one.

CP state is in memory, unless the paid edition stores it: a restart of all members makes a new
group, whose fences begin anew.  A member that was killed and comes back is a new one, which must be
promoted to the CP subsystem by hand.

As store, an `AtomicReference` takes every write.  With `fenced` the value carries the highest
token, and a write is a compare-and-set on what was read.
"""

import http.client
import json
from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.target import Cluster, ErrorRule, LockClient, Place, Server, StoreClient
from targets import jars
from targets._binary import IMAGE, one_of
from targets._no_effect import ChangedMeanwhileError, NotAskedError, NotConnectedError

PORT = 5701
PROBE_TIMEOUT_S = 0.5
VERSION = "5.3.8"
_JVM = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # quick to start, and it runs for a minute
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
)
_START = ("/opt/hazelcast/bin/hz", "start")
_MAIN = "com.hazelcast.core.server.HazelcastMemberStarter"


class Hazelcast:
    """A Hazelcast cluster, `hazelcast1`..`hazelcastN`: CP FencedLocks, with fences as tokens."""

    name = "hazelcast"

    class Options(BaseModel):
        """Options of the target `hazelcast`."""

        model_config = ConfigDict(extra="forbid")

        nodes: int = Field(3, ge=3, le=7, description="members, all of them in the CP subsystem")
        version: str = Field(
            VERSION, description="a released version, fetched by `python -m targets.jars`"
        )
        home: str | None = Field(None, description="folder with the jar of a Hazelcast of your own")
        java: str | None = Field(None, description="path of a Java runtime of your own")
        image: str | None = Field(None, description=f"{IMAGE}, set by JAVA_OPTS as the official is")
        session_ttl: int = Field(
            2, ge=2, description="whole seconds that a session lasts after its last heartbeat"
        )
        fenced: bool = Field(default=False, description="as store: refuse a lower token")

        @model_validator(mode="after")
        def _one_source(self) -> Self:
            one_of(home=self.home, image=self.image)
            return self

    errors: Sequence[ErrorRule] = (
        ErrorRule(
            "not connected",
            "no member could be reached, or the connection was gone: no request was sent",
            lambda error: isinstance(error, NotConnectedError),
        ),
        ErrorRule(
            "not asked",
            "only reads and the start of a session were tried, and neither takes a lock",
            lambda error: isinstance(error, NotAskedError),
        ),
        ErrorRule(
            "changed meanwhile",
            "the compare-and-set answered that the value was another one, and did nothing",
            lambda error: isinstance(error, ChangedMeanwhileError),
        ),
    )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self.fence = "checked" if self.options.fenced else "none"

    def servers(self) -> Sequence[Server]:
        """The members.  Raises UsageError where the jar or a Java runtime is missing."""
        options = self.options
        names = [f"hazelcast{i + 1}" for i in range(options.nodes)]
        peers = ",".join(f"{{peer[{name}]}}:{PORT}" for name in names)
        settings = {
            "hazelcast.local.localAddress": "{address}",
            "hazelcast.socket.bind.any": "false",
            "hazelcast.phone.home.enabled": "false",
            "hazelcast.initial.min.cluster.size": options.nodes,
            "hazelcast.wait.seconds.before.join": 0,
            "hazelcast.tcp.join.port.try.count": 1,
            "hazelcast.partition.count": 11,  # CP has no partitions, and nothing else is used
            "hazelcast.max.no.heartbeat.seconds": 30,
            "hz.network.port.port": PORT,
            "hz.network.port.auto-increment": "false",
            "hz.network.join.multicast.enabled": "false",
            "hz.network.join.auto-detection.enabled": "false",
            "hz.network.join.tcp-ip.enabled": "true",
            "hz.network.join.tcp-ip.members": peers,
            "hz.network.rest-api.enabled": "true",
            "hz.network.rest-api.endpoint-groups.HEALTH_CHECK.enabled": "true",
            "hz.network.rest-api.endpoint-groups.CP.enabled": "true",
            "hz.cp-subsystem.cp-member-count": options.nodes,
            "hz.cp-subsystem.session-time-to-live-seconds": options.session_ttl,
            "hz.cp-subsystem.session-heartbeat-interval-seconds": 1,
        }
        flags = [*_JVM, *(f"-D{key}={value}" for key, value in settings.items())]
        if options.image is not None:
            env = {"JAVA_OPTS": " ".join(flags)}
            return [Server(name, _START, PORT, env=env, image=options.image) for name in names]
        java = jars.find_java(self.name, options.java)
        path = jars.class_path(self.name, options.version, options.home)
        argv = [java, *flags, "-cp", path, _MAIN]
        return [Server(name, argv, PORT) for name in names]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client (imports hazelcast)."""
        from targets._hazelcast_client import HazelcastLock

        return HazelcastLock(_endpoints(cluster), timeout_s)

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Make a store client (imports hazelcast)."""
        from targets._hazelcast_client import HazelcastStore

        return HazelcastStore(_endpoints(cluster), timeout_s, fenced=self.options.fenced)

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when every member is at rest and knows the whole CP subsystem."""
        wanted = len(cluster.places)
        for place in cluster.places:
            if _ask(place, "health/ready") is None:
                return f"{place.name} is not ready"
            if (known := _cp_members(place)) != wanted:
                return f"{place.name} knows {known} of {wanted} members of the CP subsystem"
        return None

    def answers(self, place: Place) -> str | None:
        """Return None when this member calls itself active."""
        state = (_ask(place, "health/node-state") or b"").decode(errors="backslashreplace")
        return None if "ACTIVE" in state else f"{place.name} is {state or 'silent'}"

    def version(self) -> str:
        """Return the version of the jar in the cache, or the user's own folder."""
        if self.options.image is not None:
            return f"hazelcast of {self.options.image}"
        return f"hazelcast {self.options.home or self.options.version}"


def _endpoints(cluster: Cluster) -> list[str]:
    return [place.endpoint for place in cluster.places]


def _cp_members(place: Place) -> int:
    try:
        return len(json.loads(_ask(place, "rest/cp-subsystem/members") or "[]"))
    except (ValueError, TypeError):
        return 0


def _ask(place: Place, what: str) -> bytes | None:
    """Return what a member answers to a question, None when it does not answer with 200."""
    connection = http.client.HTTPConnection(place.address, place.port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", f"/hazelcast/{what}")
        answer = connection.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return said if answer.status == http.client.OK else None
