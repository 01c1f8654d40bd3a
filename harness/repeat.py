"""The command that repeats a run, on any machine: flags and the seed, no path of this one."""

import shlex
from typing import Any

from harness.spec import RunSpec

_FLAGS = ("keys", "think", "rate")


def command(spec: RunSpec) -> str:
    """Return the `winkle run` command line of a run.

    A workload option that has no flag cannot be said there; the run file in the run folder has it.
    """
    words = ["winkle", "run", "--lock", str(spec.lock), "--store", str(spec.store)]
    plain = RunSpec(lock=spec.lock, store=spec.store)
    if spec.workload != plain.workload:
        words += ["--workload", spec.workload]
    for fault in spec.faults:
        words += ["--fault", str(fault)]
    for name in ("backend", "inventory", "compose", "servers", "workers", "readers"):
        if getattr(spec, name) != getattr(plain, name):
            words += [f"--{name}", str(getattr(spec, name))]
    for flag, name in (("--ttl", "ttl_s"), ("--time", "time_s"), ("--op-timeout", "op_timeout_s")):
        if getattr(spec, name) != getattr(plain, name):
            words += [flag, f"{getattr(spec, name):g}s"]
    words += [word for name in _FLAGS if name in spec.options for word in _flag(spec, name)]
    if spec.options.get("check") in (False, "off"):
        words.append("--no-check")
    if spec.stop_on_failure:
        words.append("--stop-on-failure")
    return shlex.join([*words, "--seed", str(spec.seed)])


def _flag(spec: RunSpec, name: str) -> tuple[str, Any]:
    return f"--{name}", str(spec.options[name])
