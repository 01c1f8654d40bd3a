"""The command that repeats a run: flags, options and the seed."""

import shlex

from harness.spec import RunSpec, TargetSpec


def command(spec: RunSpec) -> str:
    """Return the `winkle run` command line of a run.

    A file of the user's own (a target, an inventory, a compose file) is named as it was given.
    """
    words = ["winkle", "run", "--lock", str(spec.lock), "--store", str(spec.store)]
    plain = RunSpec(lock=spec.lock, store=spec.store)
    if (spec.workload, spec.options) != (plain.workload, plain.options):
        words += ["--workload", str(TargetSpec(spec.workload, spec.options))]
    for fault in spec.faults:
        words += ["--fault", str(fault)]
    for name in ("backend", "inventory", "compose", "servers", "workers", "readers"):
        if getattr(spec, name) != getattr(plain, name):
            words += [f"--{name}", str(getattr(spec, name))]
    for flag, name in (("--ttl", "ttl_s"), ("--time", "time_s"), ("--op-timeout", "op_timeout_s")):
        if getattr(spec, name) != getattr(plain, name):
            words += [flag, f"{getattr(spec, name):g}s"]
    if spec.stop_on_failure:
        words.append("--stop-on-failure")
    return shlex.join([*words, "--seed", str(spec.seed)])
