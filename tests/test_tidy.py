"""Rules of the house that a program can enforce."""

import ast
import os
import pwd
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("harness", "targets", "nemesis", "workloads", "reports")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
MEDIAN_LINES_MAX = 200
# A package of the core may import only what stands left of it, never right.
SHELLS = ("os.system(", "os.popen", "shell=True", "subprocess.getoutput", "create_subprocess_shell")
MARKS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
STARTED_BY_NAME = {
    "harness.checking.sidebyside",
    "harness.cli",
    "harness.docker.agent",
    "harness.docker.main",
    "harness.envoy",
    "harness.local.engine",
    "harness.local.main",
    "harness.local.probe",
    "harness.ssh.agent.main",
    "harness.ssh.between",
    "harness.ssh.main",
    "harness.worker",
    "harness.schemas",
    "targets.atlasmart.lockd",
    "targets.atlasmart.stored",
}


def files(*folders: str) -> list[Path]:
    return [p for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))]


def name_of(path: Path) -> str:
    relative = path.relative_to(ROOT).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    return ".".join(parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def test_the_core_imports_none_of_the_others_and_they_only_the_core() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {target}"
        for path in files(*PRODUCT)
        for line, target in imports(path)
        if (package := target.split(".")[0]) in PRODUCT
        and package not in ("harness", path.relative_to(ROOT).parts[0])
    ]
    assert not wrong, "\n".join(wrong)


def test_judging_and_rendering_know_nothing_live() -> None:
    """Checkers and reports are functions of what is on disk: no process, clock or chance."""
    live = re.compile(
        r"(os|sys|socket|subprocess|asyncio|threading|random|time|datetime|signal)\b"
        r"|harness\.(controller|crew|nemesis|force|run|worker|local|servers|api)\b"
    )
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {target}"
        for path in files("workloads", "reports")
        for line, target in imports(path)
        if live.match(target)
    ]
    assert not wrong, "\n".join(wrong)


def test_file_sizes() -> None:
    lengths = {
        path: len(path.read_text().splitlines()) for path in files(*PRODUCT, "tests", "bench")
    }
    wrong = [f"{p.relative_to(ROOT)}: {n} lines" for p, n in lengths.items() if n > FILE_LINES_MAX]
    assert not wrong, "\n".join(wrong)
    product = [n for path, n in lengths.items() if path.relative_to(ROOT).parts[0] in PRODUCT]
    assert statistics.median(product) <= MEDIAN_LINES_MAX


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return a function's length without its docstring."""
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def test_function_sizes() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{f.lineno}: {f.name} has {body_lines(f)} lines"
        for path in files(*PRODUCT, "tests", "bench")
        for f in functions(ast.parse(path.read_text()))
        if body_lines(f) > FUNCTION_LINES_MAX
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_is_true() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in files(*PRODUCT, "tests", "bench")
        if len(ast.get_docstring(ast.parse(path.read_text())) or "") < 25
    ]
    assert not wrong, "\n".join(wrong)


def test_no_shell_no_marks_no_unsafe_yaml() -> None:
    wrong = []
    for path in files(*PRODUCT, "tests", "bench", "docs"):
        if path == Path(__file__):  # it names what it looks for
            continue
        text = path.read_text()
        wrong += [f"{path.relative_to(ROOT)}: {word}" for word in SHELLS if word in text]
        wrong += [f"{path.relative_to(ROOT)}: {m.group()}" for m in MARKS.finditer(text)]
        if re.search(r"yaml\.(load|full_load|unsafe_load)\(", text):
            wrong.append(f"{path.relative_to(ROOT)}: yaml.load")
    assert not wrong, "\n".join(wrong)


def test_no_dead_files() -> None:
    """Every module is imported by another, is an entry point, or is started by name."""
    used = set(STARTED_BY_NAME)
    for path in files(*PRODUCT, "tests", "bench", "docs"):
        for _, target in imports(path):
            used.add(target)
            used.add(target.rpartition(".")[0])
    entry = re.findall(r'= "([a-z_.]+):', (ROOT / "pyproject.toml").read_text())
    lazy = [
        found
        for name in ("__init__.py", "backend.py")
        for found in re.findall(r'"(harness\.[a-z_.]+)"', (ROOT / "harness" / name).read_text())
    ]
    used |= {*entry, *lazy}
    dead = [name for p in files(*PRODUCT) if (name := name_of(p)) not in used and "." in name]
    assert not dead, "\n".join(dead)


def test_units_stand_last_in_names() -> None:
    """`timeout_ms`, never `ms_timeout`; and no bare `timeout` of ours."""
    wrong = [
        f"{path.relative_to(ROOT)}:{f.lineno}: {f.name}({argument.arg})"
        for path in files(*PRODUCT)
        for f in functions(ast.parse(path.read_text()))
        for argument in (*f.args.args, *f.args.kwonlyargs)
        if re.match(r"(ns|ms|s)_", argument.arg) or argument.arg in ("timeout", "delay")
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_names_this_machine() -> None:
    listed = subprocess.run(  # whichever git made this checkout
        [
            "git",
            "ls-files",
            "-co",
            "--exclude-standard",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    here = (ROOT, Path(pwd.getpwuid(os.getuid()).pw_dir))  # HOME may be any folder
    names = re.compile("|".join(re.escape(f"{place}/") for place in here if len(place.parts) > 1))
    wrong = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix == ".png" or not path.is_file():
            continue
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1):
            if names.search(line):
                wrong.append(f"{name}:{number}: {line.strip()[:80]}")
    assert not wrong, "\n".join(wrong)
