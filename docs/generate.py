"""The reference in docs/reference, written from the code that it describes.

    python -m docs.generate [FOLDER]

Names, options, defaults, messages and schemas come from the same types that do the reading and the
writing, and the words from their docstrings, so a page cannot drift from the program; a test
compares the committed pages with what comes out of here.  Sentences that the code has no place for
stand in `docs.words`, and a name without its sentence stops the generation.
"""

import importlib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from docs import words
from harness import anomalies, plugins, runcheck, suite, target, trap
from harness import protocol as wire
from harness.checking import MODELS
from harness.note import Note
from harness.op import Op
from harness.options import allowed_text
from harness.results import Results
from harness.runmodel import RunFile
from harness.schemas import published
from harness.target import Accept
from harness.verdict import Anomaly, Property, Reason, Unknown, Verdict
from harness.window import Proof, Window

FOLDER = Path(__file__).resolve().parent / "reference"
_HEAD = "<!-- Written by `python -m docs.generate`; edit the code or docs/words.py instead. -->"
_ABILITIES = (
    target.LockService,
    target.Store,
    target.Ready,
    target.Answers,
    target.Leader,
    target.Queueing,
    target.Secretive,
    target.HasStrangers,
    target.Membership,
    target.TellsTime,
    target.Forgeable,
    target.Versioned,
    target.StoreLog,
    target.ErrorTable,
)


def reference() -> dict[str, str]:
    """Return every file of the reference by its name."""
    written = {
        "anomalies.md": anomaly_pages(),
        "cli.md": commands(),
        "faults.md": faults(),
        "inventory.md": inventory(),
        "models.md": models(),
        "protocol.md": protocol(),
        "results.md": results(),
        "run-file.md": run_file(),
        "run-folder.md": run_folder(),
        "suites.md": suites(),
        "targets.md": targets(),
        "workloads.md": workloads(),
    }
    for name, schema in published().items():
        written[name] = json.dumps(schema, indent=2, sort_keys=True) + "\n"
    return written


def write(folder: Path) -> None:
    """Write the reference to a folder.  Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in reference().items():
        (folder / name).write_text(text, "utf-8")


# ------------------------------------------------------------------------------------- pages


def anomaly_pages() -> str:
    """Return the catalogue, gravest first, with what judges each name."""
    access = importlib.import_module("workloads.access")
    fencing = importlib.import_module("workloads._telling").GRAVITY
    judged = dict.fromkeys(fencing, "`fencing`") | dict.fromkeys(
        (access.EFFECT, access.LEAK), "`access`"
    )
    lines = page("Anomalies", words.ANOMALIES)
    rows = [
        (f"[`{p.name}`](#{p.name})", p.says, judged.get(p.name, "none yet"))
        for p in anomalies.catalogue().values()
    ]
    lines += table(("name", "what it says", "judged by"), rows)
    for one in anomalies.catalogue().values():
        lines += [f"## {one.name}", "", one.says, "", *fenced("text", one.drawing.rstrip())]
        lines += ["How it comes about:", "", *(f"- {seed}" for seed in one.seeds), ""]
        lines += ["How to fix it:", "", *(f"- {step}" for step in one.fix), ""]
    return joined(lines)


def models() -> str:
    """Return the models of `winkle check --model`."""
    rows = [
        (
            f"`{name}`",
            ", ".join(f"`{op}`" for op in model.ops),
            " ".join(model.doc.split("\n\n")[0].split()),
            " or ".join(
                how for how, judge in (("sorts", model.fast), ("search", model.search)) if judge
            ),
        )
        for name, model in MODELS.items()
    ]
    lines = page("Models", words.MODELS)
    return joined([*lines, *table(("model", "operations", "what it judges", "by"), rows)])


def commands() -> str:
    """Return every command of `winkle` with its arguments and options."""
    import typer

    from harness import cli

    root: Any = typer.main.get_command(cli.app)
    lines = page("Command line", words.CLI)
    lines += ["## winkle", "", root.help, "", *parameters(root)]
    for name, command in root.commands.items():
        given = " ".join(_argument(p) for p in command.params if p.param_type_name == "argument")
        usage = f"winkle {name} [OPTIONS] {given}".rstrip()
        lines += [f"## winkle {name}", "", command.help, "", *fenced("text", usage)]
        lines += parameters(command)
    return joined(lines)


def _argument(parameter: Any) -> str:
    return parameter.metavar if parameter.required else f"[{parameter.metavar}]"


def parameters(command: Any) -> list[str]:
    """Return the table of a command's parameters."""
    rows = []
    for one in command.params:
        if "completion" in (one.name or ""):
            continue  # typer's own
        names = [one.metavar] if one.param_type_name == "argument" else one.opts
        spelled = ", ".join(f"`{name}`" for name in [*names, *one.secondary_opts])
        if one.param_type_name == "option" and one.metavar:
            spelled += f" `{one.metavar}`"
        shown = "" if one.default in (None, False) else f"`{one.default}`"
        rows.append((spelled, shown, one.help))
    return table(("parameter", "default", "meaning"), rows) if rows else []


def faults() -> str:
    """Return the kinds of fault, and the keys, roles and phases that all of them share."""
    lines = page("Faults", words.FAULTS)
    schema = RunFile.model_json_schema()["$defs"]["Fault"]["anyOf"][1]
    lines += ["## Keys of every fault", "", *options_of_schema(schema, words.FAULT_DEFAULTS)]
    lines += ["## Who", "", *named(words.ROLES, (*runcheck.ROLES, *words.NUMBERED))]
    phases = [
        (f"`{name}`", f"`{op}`", text)
        for (name, op), text in zip(
            trap.PHASE_OF.items(), described(words.PHASES, trap.PHASE_OF), strict=True
        )
    ]
    lines += ["## Phases", "", words.PHASES_HEAD, ""]
    lines += table(("phase", "during", "where"), phases)
    lines += ["## Kinds", ""]
    for one in plugins.describe("faults"):
        lines += [f"### {one.name}", "", *prose(module_of("faults", one.name).__doc__)]
        lines += options(one)
    return joined(lines)


def protocol() -> str:
    """Return the worker protocol, message by message."""
    lines = page("Worker protocol", words.PROTOCOL)
    lines += prose(wire.__doc__)
    lines += [f"Protocol version: {wire.VERSION}. Longest line: {wire.LINE_BYTES_MAX:,} bytes.", ""]
    for head, union in (
        ("From the controller to a worker", wire.ToWorker),
        ("From a worker to the controller", wire.FromWorker),
    ):
        lines += [f"## {head}", ""]
        for kind in union.__args__:
            tag = kind.__struct_config__.tag
            lines += record(kind, f"`{tag}`", level="###", skip=("type",))
    lines += ["## An exchange", "", words.EXCHANGE, "", *fenced("text", example())]
    return joined(lines)


def example() -> str:
    """Return the example exchange, broken at the width of a page."""
    spaced = [
        line[:3] + json.dumps(json.loads(line[3:]), ensure_ascii=False)
        for line in words.PROTOCOL_EXAMPLE.splitlines()
    ]
    return "\n".join(textwrap.fill(line, 98, subsequent_indent="   ") for line in spaced)


def results() -> str:
    """Return `results.json`, field by field, with the reasons, the counts and the margins."""
    lines = page("results.json", words.RESULTS)
    for kind in (Results, Verdict, Anomaly, Property, Unknown):
        lines += record(kind, kind.__name__)
    lines += ["## Reasons for unknown", "", *named(words.REASONS, [r.value for r in Reason])]
    lines += ["## Counts of the fencing workload (`stats`)", "", *named(words.STATS, words.STATS)]
    margins = importlib.import_module("reports.tables")._MARGINS  # noqa: SLF001 - the only words
    lines += ["## Margins of the fencing workload (`margins`)", ""]
    lines += [words.MARGINS, "", *named(margins, margins)]
    return joined(lines)


def run_file() -> str:
    """Return the keys of a run file, with a whole one."""
    from harness.runfile import read, to_yaml

    schema = RunFile.model_json_schema()
    lines = page("Run file", words.RUN_FILE)
    lines += options_of_schema(schema, words.RUN_DEFAULTS)
    lines += [words.DURATIONS, "", "## Short spellings", "", words.SPELLINGS, ""]
    lines += [words.LONG_FORM, "", *fenced("yaml", words.RUN_EXAMPLE.rstrip())]
    lines += [words.SAME, "", *fenced("yaml", to_yaml(read(words.RUN_EXAMPLE)).rstrip())]
    return joined(lines)


def inventory() -> str:
    """Return the keys of an inventory of hosts."""
    from harness.ssh.inventory import inventory_schema

    schema = inventory_schema()
    lines = page("Inventory", words.INVENTORY)
    lines += options_of_schema(schema, {"defaults": "{}"})
    lines += ["## A host", "", words.INVENTORY_HOST, ""]
    lines += options_of_schema(schema["$defs"]["Host"], {})
    return joined(lines)


def run_folder() -> str:
    """Return the files of a run folder, and the records in them."""
    from harness import folder

    lines = page("Run folder", words.RUN_FOLDER)
    lines += prose(folder.__doc__)
    for kind, title in (
        (Op, "history.jsonl"),
        (Note, "notes.jsonl"),
        (Window, "faults.jsonl"),
        (Proof, "faults.jsonl: `on` and `off`"),
        (Accept, "store.jsonl"),
    ):
        lines += record(kind, title)
    lines += ["## Operations of the fencing workload", "", words.OPERATIONS, ""]
    return joined(lines)


def suites() -> str:
    """Return the keys of a suite file, and the shipped suites run by run."""
    entry = suite.suite_schema()["$defs"]["_Entry"]
    own = {k: v for k, v in entry["properties"].items() if k not in RunFile.model_fields}
    lines = page("Suites", words.SUITES)
    lines += options_of_schema({**entry, "properties": own}, {})
    for name, about in suite.shipped().items():
        lines += [f"## {name}", "", f"{about[:1].upper()}{about[1:]}.", ""]
        rows = [
            (
                run.name,
                f"`{run.spec.lock}`",
                f"`{run.spec.store}`",
                ", ".join(f"`{fault}`" for fault in run.spec.faults),
                ", ".join([run.expect, *(f"`{a}`" for a in run.anomalies)]),
                str(run.refusals),
            )
            for run in planned(name)
        ]
        head = ("run", "lock", "store", "faults", "expected", "refusals, at least")
        lines += table(head, rows)
    return joined(lines)


def targets() -> str:
    """Return the targets with their options, servers, abilities and error tables."""
    lines = page("Targets", words.TARGETS)
    for one in plugins.describe("targets"):
        made = plugins.make("targets", one.name, {})
        lines += [f"## {one.name}", "", *prose(module_of("targets", one.name).__doc__)]
        lines += options(one)
        lines += ["Servers, with the options left as they are:", ""]
        with patch("targets.jars.class_path", return_value=""), patch("targets.jars.find_java"):
            # What a server is called does not depend on what is installed here.
            servers = [(f"`{s.name}`", str(s.port), s.role) for s in made.servers()]
        lines += table(("server", "port", "role"), servers)
        if isinstance(made, target.Store):
            lines += [f"As store its `fence` is `{made.fence}` unless an option changes it.", ""]
        lines += ["Abilities:", "", *(f"- {text}" for text in abilities(made)), ""]
        lines += ["Errors that prove that nothing happened; any other is `info`:", ""]
        rules = [(rule.name, rule.why) for rule in made.errors]
        lines += table(("error", "why it is a proof"), rules)
    return joined(lines)


def abilities(made: object) -> list[str]:
    """Return what a target can do, in the words of the protocols."""
    found = []
    for ability in _ABILITIES:
        if isinstance(made, ability):
            text = re.sub(r"Ability[^:]*: ", "", (ability.__doc__ or "").split("\n", 1)[0])
            found.append(f"`{ability.__name__}`: {text}")
    return found


def workloads() -> str:
    """Return the workloads with their options and properties."""
    lines = page("Workloads", words.WORKLOADS)
    for one in plugins.describe("workloads"):
        lines += [f"## {one.name}", "", *prose(module_of("workloads", one.name).__doc__)]
        lines += [*options(one), words.WORKLOAD_MORE.get(one.name, ""), ""]
    return joined(lines)


def planned(name: str) -> list[suite.Planned]:
    """Return the runs of a shipped suite, whichever released versions this machine has."""
    with patch("targets._binary.needed", lambda product, version: Path(f"/{product}-{version}")):
        return suite.read_suite(suite.locate(name))


# ------------------------------------------------------------------------------------- parts


def page(title: str, text: str) -> list[str]:
    """Return the beginning of a page."""
    return [_HEAD, "", f"# {title}", "", text.strip(), ""]


def joined(lines: Iterable[str]) -> str:
    """Return the lines as a file that ends in one line feed."""
    return "\n".join(lines).rstrip() + "\n"


def fenced(language: str, text: str) -> list[str]:
    """Return a block of code."""
    return [f"```{language}", text, "```", ""]


def prose(docstring: str | None) -> list[str]:
    """Return a docstring as Markdown: its indented blocks are code in both."""
    return [*inspect.cleandoc(docstring or "").replace("::\n\n", "").split("\n"), ""]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    ruled = [header, ["---"] * len(header), *rows]
    return [*("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in ruled), ""]


def described(texts: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return the sentence of each name.  Raises KeyError for a name that has none, and back."""
    wanted = list(names)
    if strange := set(texts) - set(wanted):
        raise KeyError(f"docs.words describes what is not there: {', '.join(sorted(strange))}")
    return [texts[name] for name in wanted]


def named(texts: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return a table of names with their sentences."""
    wanted = list(names)
    return table(
        ("name", "meaning"),
        [(f"`{n}`", text) for n, text in zip(wanted, described(texts, wanted), strict=True)],
    )


def module_of(kind: plugins.Kind, name: str) -> Any:
    """Return the module that an entry point names."""
    return importlib.import_module(plugins.entries(kind)[name].module)


def options(one: plugins.Description) -> list[str]:
    """Return the table of a plug-in's options."""
    if not one.options:
        return ["It has no options of its own.", ""]
    rows = [(f"`{o.name}`", o.allowed, f"`{o.default}`", o.text) for o in one.options]
    return table(("option", "allowed", "default", "meaning"), rows)


def options_of_schema(schema: Mapping[str, Any], defaults: Mapping[str, str]) -> list[str]:
    """Return the table of the keys that a JSON schema describes; `defaults` in a user's words."""
    rows = []
    for name, entry in schema["properties"].items():
        default = defaults.get(name, json.dumps(entry.get("default")).strip('"'))
        required = name in schema.get("required", ())
        shown = "required" if required else "" if default == "null" else f"`{default}`"
        rows.append((f"`{name}`", shown, str(entry.get("description", ""))))
    return table(("key", "default", "meaning"), rows)


def record(kind: type, title: str, *, level: str = "##", skip: Sequence[str] = ()) -> list[str]:
    """Return a record type: its docstring, and its fields with type and default."""
    (_,), known = msgspec.json.schema_components((kind,), ref_template="{name}")
    entry: Mapping[str, Any] = known[kind.__name__]
    rows = [
        (
            f"`{name}`",
            type_words(field),
            "required" if name in entry["required"] else f"`{json.dumps(field.get('default'))}`",
        )
        for name, field in entry["properties"].items()
        if name not in skip
    ]
    return [
        f"{level} {title}",
        "",
        *prose(kind.__doc__),
        *table(("field", "type", "default"), rows),
    ]


def type_words(field: Mapping[str, Any]) -> str:
    """Return a field's JSON type in words."""
    if "$ref" in field:
        return str(field["$ref"])
    if "anyOf" in field:
        return " or ".join(type_words(part) for part in field["anyOf"])
    if "prefixItems" in field or field.get("type") == "array":
        inner = field.get("items")
        return f"list of {type_words(inner)}" if isinstance(inner, Mapping) else "list"
    if field.get("type") == "object":
        return "mapping"
    return allowed_text(field, {}).replace("|", " or ")


def main(arguments: Sequence[str]) -> int:
    """Write the reference; return the exit code."""
    write(Path(arguments[0]) if arguments else FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
