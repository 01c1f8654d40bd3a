"""The models by name: what each judges, and how.

A model has a search, and most have a fast exact check for the usual case in which each written
value names its write.  The fast check raises RepeatedValuesError for keys that need the search.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.checking import mutexes, objects
from harness.checking.cas import judge_cas
from harness.checking.columns import Columns
from harness.checking.consensus import judge_consensus
from harness.checking.fenced import judge_fenced
from harness.checking.fences import has_seals, judge_fences, with_one_fence
from harness.checking.finding import Finding, Named
from harness.checking.lease import judge_lease_promise
from harness.checking.lock import judge_lock
from harness.checking.lockcalls import lock_calls, with_tokens
from harness.checking.model import SearchModel
from harness.checking.register import judge_register
from harness.checking.sets import judge_set
from harness.checking.steps import steps_of


@dataclass(frozen=True, slots=True)
class Options:
    """What the history itself does not say.

    `initial` is the state of every key before the first operation.  `cas_tells`: a failed
    compare-and-set says that the value differed (else only that it did not happen).
    """

    initial: object = None
    cas_tells: bool = True


Fast = Callable[[Columns, Options], Named | None]


def _as_they_are(columns: Columns) -> Columns:
    return columns


@dataclass(frozen=True, slots=True)
class Model:
    """One model: what it judges (`doc`), the functions `ops` it understands, and its two judges.

    `search` is None for a property that is no order of operations (a lease's promise).
    `is_register`: of plain values, whose fast check gives up where values are written again, and
    which has a search of its own for short histories.  `prepare` makes of the columns what the
    judges expect; it raises MalformedHistoryError for what they cannot judge.
    """

    doc: str
    ops: tuple[str, ...]
    search: Callable[[Options], SearchModel] | None
    fast: Fast | None = None
    is_register: bool = False
    prepare: Callable[[Columns], Columns] = _as_they_are


def _of(model: Callable[[], SearchModel], fast: Fast | None = None) -> Model:
    made = model()
    doc = (type(made).__doc__ or "").strip()
    return Model(doc, made.functions, lambda _options: model(), fast)


def _register(columns: Columns, options: Options) -> Named | None:
    return judge_register(steps_of(columns, options.initial, cas_tells=options.cas_tells))


def _cas(columns: Columns, options: Options) -> Finding | None:
    return judge_cas(steps_of(columns, options.initial, cas_tells=options.cas_tells))


def _fenced(columns: Columns, options: Options) -> Named | None:
    if has_seals(columns):
        return judge_fences(columns, options.initial)
    return judge_fenced(steps_of(columns, options.initial, fenced=True))


def _fenced_global(columns: Columns, options: Options) -> Finding | None:
    return judge_fences(columns, options.initial)


def _lock(columns: Columns, _options: Options) -> Finding | None:
    return judge_lock(lock_calls(columns), expires=False)


def _lease(columns: Columns, _options: Options) -> Finding | None:
    return judge_lock(lock_calls(columns), expires=True)


def _lease_promise(columns: Columns, _options: Options) -> Finding | None:
    return judge_lease_promise(columns)


def _set(columns: Columns, options: Options) -> Finding | None:
    return judge_set(columns, options.initial)


def _consensus(columns: Columns, options: Options) -> Finding | None:
    return judge_consensus(columns, options.initial)


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "register": Model(
            "A register: `read` returns the value of the latest `write`.",
            ("read", "write"),
            lambda options: objects.RegisterModel(cas_tells=options.cas_tells),
            _register,
            is_register=True,
        ),
        "cas": Model(
            "A register with `cas` [old, new], which succeeds when the value is old.",
            ("read", "write", "cas"),
            lambda options: objects.RegisterModel(cas_tells=options.cas_tells),
            _cas,
            is_register=True,
        ),
        "fenced": _of(objects.FencedModel, _fenced),
        "fenced-global": Model(
            "Fenced registers with one highest token for all keys.",
            objects.FencedModel.functions,
            lambda _options: objects.FencedModel(),
            _fenced_global,
            prepare=with_one_fence,
        ),
        "lock": Model(
            "A lock whose grants carry rising tokens; only a release ends a hold.",
            ("acquire", "renew", "check", "release"),
            lambda _options: mutexes.TokenLockModel(expires=False),
            _lock,
            prepare=with_tokens,
        ),
        "lease": Model(
            "A lock whose grants carry rising tokens; the service may end a hold at any time.",
            ("acquire", "renew", "check", "release"),
            lambda _options: mutexes.TokenLockModel(expires=True),
            _lease,
            prepare=with_tokens,
        ),
        "kv": _of(objects.AppendModel),
        "lease-promise": Model(
            "A lease lasts for its time: a renewal acknowledged within it holds (one clock).",
            ("acquire", "renew", "check", "release"),
            None,
            _lease_promise,
        ),
        "set": _of(objects.SetModel, _set),
        "queue": _of(objects.QueueModel),
        "consensus": _of(objects.ConsensusModel, _consensus),
        "mutex": _of(mutexes.MutexModel),
        "owner-mutex": _of(mutexes.OwnerMutexModel),
        "reentrant-mutex": _of(mutexes.ReentrantMutexModel),
        "semaphore": _of(mutexes.SemaphoreModel),
    }
)
