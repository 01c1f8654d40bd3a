"""Whether a run makes sense: its names exist, its options fit, its targets can play their parts.

All of it is answered before anything is started, so that a fault that cannot work here is refused
with the reason instead of ending as an unknown verdict minutes later.
"""

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness import options as plugin_options
from harness import plugins
from harness.cast import Cast, by_part
from harness.errors import UsageError
from harness.fault import Choosy as ChoosyFault
from harness.fault import Fault as FaultPlugin
from harness.mistakes import Mistake, nearest, show, unknown
from harness.note import PHASES, QUEUED
from harness.runmodel import RANDOM, Draft, Fault, Named
from harness.target import Leader, LockService, Server, Store, Target
from harness.units import Duration
from harness.workload import Choosy, Workload

Part = Literal["lock", "store"]
DEFAULT_PHASE = "before-write"
ROLES = (
    "holder",
    "waiter",
    "reader",
    "leader",
    "follower",
    "minority",
    "majority",
    "all",
    "store",
)
_NUMBERED = re.compile(r"(worker|server):([0-9]{1,4})\Z")
_WORKER = re.compile(r"([wr])([0-9]{1,4})\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}\Z")
_PARTS: Mapping[str, tuple[type, str]] = {
    "lock": (LockService, "lock service"),
    "store": (Store, "store"),
}


@dataclass(frozen=True)
class Entry:
    """A fault of a run file: `whole` is False when wrong parts of it had to be left out."""

    position: int
    fault: Fault
    whole: bool


@dataclass(frozen=True)
class Crowd:
    """Whom a fault may hit; None is what cannot be known, because it is wrong already."""

    workers: int | None
    readers: int | None
    lock: Any = None
    lock_servers: Sequence[str] | None = None
    store_servers: Sequence[str] | None = None
    names: Sequence[str] = field(default_factory=tuple)
    attached: Sequence[str] = ()

    def cast(self, who: str, store: Any, draft: Draft) -> Cast | None:
        """Return who takes part, for a fault that means `who`; None while any of it is wrong."""
        known = (self.workers, self.readers, self.lock_servers, self.store_servers)
        if None in known or self.lock is None or store is None:
            return None
        workers, readers, lock_servers, store_servers = known
        return Cast(
            lock=self.lock,
            store=store,
            lock_servers=lock_servers or (),
            store_servers=store_servers or (),
            workers=[f"w{n + 1}" for n in range(workers or 0)],
            readers=[f"r{n + 1}" for n in range(readers or 0)],
            who=who,
            ttl_s=draft.ttl,
            machine=None if draft.backend == "ssh" else platform.machine(),
            backend=draft.backend if draft.compose is None else "docker",
            attached=self.attached,
        )


def check(draft: Draft, faults: Sequence[Entry], wrong: frozenset[str]) -> list[Mistake]:
    """Return every mistake of the parts of a run file whose shape is right.

    `wrong` names the top-level keys in which a mistake is known already.
    """
    mistakes = _backend(draft) if "backend" not in wrong else []
    lock, store = _targets(draft, mistakes)
    lock_servers, store_servers = _server_names(lock, store, mistakes, draft)
    names = tuple(dict.fromkeys([*(lock_servers or ()), *(store_servers or ())]))
    crowd = Crowd(
        None if "workers" in wrong else draft.workers,
        None if "readers" in wrong else draft.readers,
        lock,
        lock_servers,
        store_servers,
        names,
        _attached(draft, names),
    )
    if "workload" not in wrong:
        _workload(draft.workload, lock, store, mistakes)
    for entry in faults:
        fault = entry.fault
        made, found = _fault_kind(fault)
        if entry.whole:
            found += _fault_times(fault, crowd)
            if not wrong & {"time", "ttl"}:
                found += _fault_start(fault, draft)
        if complaint := who_complaint(fault.who, crowd):
            found.append(Mistake(("who",), complaint))
        elif "ttl" not in wrong and not found and isinstance(made, ChoosyFault):
            cast = crowd.cast(fault.who, store, draft)
            if cast is not None and (mistake := made.impossible(cast)):
                found.append(mistake)
        mistakes += [mistake.under("faults", entry.position) for mistake in found]
    return mistakes


def _backend(draft: Draft) -> list[Mistake]:
    """Return what does not go with the backend, or is missing for it."""
    found = []
    if draft.inventory is not None and draft.backend != "ssh":
        text = f"found {show(draft.inventory)}; allowed: nothing, unless backend is ssh"
        found.append(Mistake(("inventory",), text))
    if draft.compose is not None and draft.backend == "ssh":
        text = f"found {show(draft.compose)}; allowed: nothing, because backend is ssh"
        found.append(Mistake(("compose",), text))
    elif draft.compose is not None and not Path(draft.compose).is_file():
        text = f"there is no file {draft.compose}"
        found.append(Mistake(("compose",), text))
    if draft.backend == "ssh" and draft.inventory is None:
        found.append(Mistake(("inventory",), "missing; required: a file with the hosts"))
    elif draft.backend == "ssh" and (complaint := _hosts(str(draft.inventory))):
        found.append(Mistake(("inventory",), complaint))
    if draft.compose is None and draft.servers != "*":
        found.append(Mistake(("servers",), "found a pattern, but no compose file to look in"))
    return found


def _attached(draft: Draft, names: Sequence[str]) -> Sequence[str]:
    """Return the servers that a compose file brings up, as far as it can be read here."""
    if draft.compose is None:
        return ()
    from harness.docker.services import services

    brought_up = services(Path(draft.compose), draft.servers)
    return [name for name in names if name in brought_up]


def _hosts(inventory: str) -> str:
    """Return what is wrong with a file of hosts, nothing when it can be used."""
    from harness.ssh.inventory import read

    try:
        read(Path(inventory))
    except UsageError as error:
        return f"no hosts:\n{error}"
    return ""


def merged(lock: Named, store: Named) -> dict[str, Any]:
    """Return the options of a target that plays both parts and is therefore started once."""
    return {**lock.options, **store.options}


def _targets(draft: Draft, mistakes: list[Mistake]) -> tuple[Any, Any]:
    lock, store = draft.lock, draft.store
    if lock is None or store is None or lock.name != store.name:
        return (
            _target("lock", lock, lock.options, mistakes) if lock else None,
            _target("store", store, store.options, mistakes) if store else None,
        )
    for name in lock.options.keys() & store.options.keys():
        ours, theirs = lock.options[name], store.options[name]
        if ours != theirs:
            text = (
                f"found {show(theirs)}, but lock says {show(ours)}; allowed: one value, because"
                f" {lock.name} plays both parts and is started once"
            )
            mistakes.append(Mistake(("store", "options", name), text))
    both = _target("lock", lock, merged(lock, store), mistakes)
    if both is not None and not _plays("store", store.name, both, mistakes):
        return both, None
    return both, both


def _target(
    part: Part, named: Named, options: Mapping[str, Any], mistakes: list[Mistake]
) -> Any | None:
    try:
        made = plugins.make_target(named.name, options)
    except plugins.PluginError as error:
        for mistake in error.mistakes:
            only_in_store = len(mistake.path) > 1 and mistake.path[1] not in named.options
            where: Part = "store" if only_in_store else part
            mistakes.append(mistake.under(where))
        return None
    if lacks := lacking(made, Target):
        mistakes.append(Mistake((part,), f"{named.name} is no target: it has no {lacks}"))
        return None
    return made if _plays(part, named.name, made, mistakes) else None


def _plays(part: Part, name: str, made: object, mistakes: list[Mistake]) -> bool:
    protocol, role = _PARTS[part]
    if isinstance(made, protocol):
        return True
    able = [words for ability, words in _PARTS.values() if isinstance(made, ability)]
    can = f"it can be the {able[0]}" if able else "it can be neither lock service nor store"
    mistakes.append(Mistake((part,), f"{name} cannot be the {role}; {can}"))
    return False


def _server_complaint(server: Server, *, attached: bool) -> str | None:
    """Return why a server cannot be started anywhere, None when it can.

    One that a compose file brings up needs no command.
    """
    if not _NAME.match(str(server.name)):
        return f"found the server name {show(server.name)}; allowed: letters, digits, - and _"
    if _WORKER.match(server.name) or server.name == "a1":
        return f"found the server name {server.name}, which is a worker's; allowed: another one"
    if not isinstance(server.port, int) or not 1 <= server.port <= 65535:
        return f"server {server.name}: found the port {show(server.port)}; allowed: 1 to 65535"
    words = list(server.argv) if not isinstance(server.argv, str) else [None]
    if not words and not attached:
        return f"server {server.name}: found argv []; allowed: a command, or a compose file"
    if not all(isinstance(word, str) for word in words):
        return f"server {server.name}: found argv {show(server.argv)}; allowed: a list of texts"
    return None


def _server_names(
    lock: Any | None, store: Any | None, mistakes: list[Mistake], draft: Draft
) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Return the servers of lock and store by name; None for what cannot be known."""
    ours = _servers("lock", lock, mistakes, draft)
    theirs = None if store is lock else _servers("store", store, mistakes, draft)
    if ours is not None and (theirs is not None or store is lock):
        names = by_part(ours, theirs)
        return names["lock"], names["store"]
    found = [None if part is None else [server.name for server in part] for part in (ours, theirs)]
    return found[0], found[1]


def _servers(
    part: Part, target: Any | None, mistakes: list[Mistake], draft: Draft
) -> list[Server] | None:
    if target is None:
        return None
    try:
        found = list(target.servers())
    except BaseException as error:  # noqa: BLE001 - a target's own code, reported in one line
        text = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
        mistakes.append(Mistake((part,), f"{target.name} cannot say its servers: {text}"))
        return None
    for server in found:
        if not isinstance(server, Server):
            text = f"{target.name} is no target: servers() returned {type(server).__name__}"
            mistakes.append(Mistake((part,), f"{text}, it must return Server records"))
            return None
        if complaint := _server_complaint(server, attached=draft.compose is not None):
            mistakes.append(Mistake((part,), f"{target.name}: {complaint}"))
            return None
        if server.image is not None and draft.backend != "docker" and draft.compose is None:
            text = f"found {show(server.image)}; allowed with backend: docker"
            mistakes.append(Mistake((part, "options", "image"), text))
            return None
    return found


def _workload(named: Named, lock: Any, store: Any, mistakes: list[Mistake]) -> None:
    try:
        made = plugins.make("workloads", named.name, named.options)
    except plugins.PluginError as error:
        mistakes += [mistake.under("workload") for mistake in error.mistakes]
        return
    if lacks := lacking(made, Workload):
        mistakes.append(Mistake(("workload",), f"{named.name} is no workload: it has no {lacks}"))
    elif (
        isinstance(made, Choosy)
        and lock is not None
        and store is not None
        and (complaint := made.unsuitable(lock, store))
    ):
        mistakes.append(Mistake(("workload",), f"{named.name}: {complaint}"))


def lacking(made: object, protocol: type) -> str:
    """Return the parts of a protocol that an object lacks, in words; nothing when it has all."""
    wanted = [*protocol.__annotations__, *vars(protocol)]
    return ", ".join(
        name
        for name in dict.fromkeys(wanted)
        if not name.startswith("_") and not hasattr(made, name)
    )


def _fault_kind(fault: Fault) -> tuple[Any | None, list[Mistake]]:
    """Return the fault object, None where it cannot be made, and what is wrong with it."""
    extra = dict(fault.model_extra or {})
    try:
        known = plugin_options.names_of(plugins.factory("faults", fault.kind))
    except plugins.PluginError as error:
        return None, [mistake.under("kind") for mistake in error.mistakes]
    general = [field.alias or name for name, field in Fault.model_fields.items()]
    strange = [] if known is None else [name for name in extra if name not in known]
    mistakes = [
        Mistake((name,), unknown("option", name, [*general, *(known or ())]), at_key=True)
        for name in strange
    ]
    try:
        made = plugins.make(
            "faults", fault.kind, {k: v for k, v in extra.items() if k not in strange}
        )
    except plugins.PluginError as error:
        return None, mistakes + [
            Mistake(m.path[1:] if m.path else ("kind",), m.text, m.at_key) for m in error.mistakes
        ]
    if lacks := lacking(made, FaultPlugin):
        mistakes.append(Mistake(("kind",), f"{fault.kind} is no fault: it has no {lacks}"))
    return made, mistakes


def _fault_times(fault: Fault, crowd: Crowd) -> list[Mistake]:
    """What may stand beside what: `every` and `count`, and a phase only where a worker is meant."""
    at = fault.at or DEFAULT_PHASE
    if at == RANDOM and fault.every is not None:
        text = (
            "found together with at: random; allowed: at: random with count, or a start with every"
        )
        return [Mistake(("every",), text, at_key=True)]
    if isinstance(at, Duration) and fault.every is None and fault.count is not None:
        text = "found without every; allowed: count beside every, at: random, or a phase"
        return [Mistake(("count",), text, at_key=True)]
    if at not in PHASES and fault.after is not None:
        text = "found without a phase; allowed: after beside a phase like at: before-write"
        return [Mistake(("after",), text, at_key=True)]
    queued = fault.who == "waiter" and at == QUEUED
    others = (*ROLES[1:], *crowd.names)
    no_worker = fault.who in others or fault.who.startswith("server:") or _is_reader(fault.who)
    if at in PHASES and no_worker and not queued:
        start = "missing" if fault.at is None else f"found {show(at)}"
        text = (
            f"{start}; {fault.who} passes no phase; allowed: random, or a time of the run like 3s"
        )
        return [Mistake(("at",), text)]
    return []


def _is_reader(who: str) -> bool:
    match = _WORKER.match(who)
    return match is not None and match.group(1) == "r"


def _fault_start(fault: Fault, draft: Draft) -> list[Mistake]:
    """A window must end before the run does, or it is never begun."""
    length_s = fault.length.seconds(draft.ttl)
    start = fault.at if isinstance(fault.at, Duration) else fault.after
    at_s = start.seconds(draft.ttl) if start is not None else 0.0
    if at_s + length_s <= draft.time:
        return []
    key = "for" if not at_s else "after" if fault.after is not None else "at"
    end = f"it would end at {at_s + length_s:g}s, after the run ({draft.time:g}s)"
    return [Mistake((key,), f"found {start if at_s else fault.length}; {end}")]


def who_complaint(who: str, crowd: Crowd) -> str | None:
    """Return why a fault cannot hit `who` in this run, None when it can."""
    workers, readers = crowd.workers, crowd.readers
    if match := _NUMBERED.match(who):
        return _number_complaint(match.group(1), int(match.group(2)), crowd)
    if match := _WORKER.match(who):
        count = workers if match.group(1) == "w" else readers
        if count is None or 1 <= int(match.group(2)) <= count:
            return None
    elif who in crowd.names:
        return None
    if who not in ROLES:
        return _nobody(who, crowd)
    if who == "waiter" and workers is not None and workers < 2:
        return 'found "waiter"; allowed with workers: 2 or more'
    if who == "reader" and readers is not None and readers < 1:
        return 'found "reader"; allowed with readers: 1 or more'
    if who == "store":
        none = crowd.store_servers is not None and not crowd.store_servers
        return 'found "store", but the store has no server process of its own' if none else None
    return _quorum_complaint(who, crowd)


def _nobody(who: str, crowd: Crowd) -> str | None:
    words = [*ROLES, "worker:N", "server:N", *crowd.names]
    hint = nearest(who, words)
    if not hint and (crowd.lock_servers is None or crowd.store_servers is None):
        return None  # it may be a server of the target that could not be made
    return f"found {show(who)}; {hint}allowed: {', '.join(words)}, or a worker's name (w1.., r1..)"


def _number_complaint(what: str, number: int, crowd: Crowd) -> str | None:
    servers = None if crowd.lock_servers is None else len(crowd.lock_servers)
    count = crowd.workers if what == "worker" else servers
    if count is None or 1 <= number <= count:
        return None
    allowed = f"{what}:1 to {what}:{count}" if count else f"nothing, because there is no {what}"
    return f'found "{what}:{number}"; allowed: {allowed}'


def _quorum_complaint(who: str, crowd: Crowd) -> str | None:
    if crowd.lock is None or crowd.lock_servers is None:
        return None
    name, count = crowd.lock.name, len(crowd.lock_servers)
    if who in ("leader", "follower") and not isinstance(crowd.lock, Leader):
        return f"found {show(who)}, but {name} cannot say which of its servers leads"
    needed = {"leader": 1, "follower": 2, "minority": 3, "majority": 1, "all": 1}.get(who, 0)
    if count < needed:
        return f"found {show(who)}, which needs {needed} servers or more; {name} has {count} here"
    return None
