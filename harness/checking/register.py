"""The plain register: a read returns the latest written value.

Exact in O(n log n) when each value is written once on a key, unknown outcomes included: a write of
unknown outcome that nobody saw may be left out, one that was seen must have happened.  A history is
legal when no two values of a key must each come before the other (Gibbons and Korach 1997).
"""

import numpy as np

from harness.checking.clusters import Clusters, conflict, gather, reads_of
from harness.checking.finding import Finding
from harness.checking.steps import DONE, UNKNOWN, WRITE, Steps


def judge_register(steps: Steps) -> Finding | None:
    """Return what is wrong, None when some order explains everything.

    Raises RepeatedValuesError.
    """
    if not len(steps.call):
        return None
    writes = steps.rows(WRITE, DONE, UNKNOWN)
    clusters = gather(steps, writes, steps.value[writes], reads_of(steps))
    if isinstance(clusters, Finding):
        return clusters
    return _conflict(clusters)


def _conflict(clusters: Clusters) -> Finding | None:
    members = np.flatnonzero(~clusters.optional)
    return conflict(clusters, members, clusters.key[members], clusters.steps.never + 2)
