"""`winkle doctor` and `winkle heal`: what works on this machine, and what dead runs left on it."""

import msgspec

from harness.terminal import out, paint, printable


def doctor(*, as_json: bool) -> int:
    """Print what was tried here and the fix for what does not work; 1 if a run needs it."""
    from harness.doctor import examine

    findings = examine()
    if as_json:
        record = [
            {"name": f.name, "ok": f.ok, "required": f.required, "text": f.text, "fix": f.fix}
            for f in findings
        ]
        out(msgspec.json.format(msgspec.json.encode(record), indent=2).decode())
    else:
        for finding in findings:
            mark = paint("ok", "green") if finding.ok else paint("no", "red")
            out(f"{mark}  {finding.name}: {printable(finding.text)}")
            if finding.fix:
                out(f"    fix: {printable(finding.fix)}")
    return 1 if any(finding.required and not finding.ok for finding in findings) else 0


def heal() -> int:
    """Undo what dead runs left, and print what was done."""
    from harness.docker.sweep import heal as remove_containers
    from harness.heal import heal as undo

    done = [*undo(), *remove_containers()]
    for line in done:
        out(printable(line))
    if not done:
        out("nothing to undo")
    return 0
