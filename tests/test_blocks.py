"""Every block of README and docs is executed, or compared with output that is made again, or marked as notation.

====================== =================================================================================================
block                   rule ======================
================================================================================================= ``console``
a command of memdiag with its output; docs/outputs.py writes it (test_outputs.py, test_tutorial.py) ``text``
output that a script writes or a test compares: the reports of findings pages, or ``COMPARED`` above it ``json``
an example whose keys a test compares: ``COMPARED`` above it ``python``              executed if it stands alone
(test_python_that_stands_alone_runs); parts of a program are parsed, and
                        the names of torch in them must exist
``bash``, ``sh``        commands; those of memdiag that read files are executed here, others are checked word by word
``yaml``, ``toml``      parsed; the commands of memdiag in them are checked word by word
``notation``            neither a command nor output: a formula, the files of a folder, the shape of JSON (its keys must
    exist)
indented                commands only, under the rule of ``bash``
======================
=================================================================================================
"""

from __future__ import annotations

import ast
import base64
import builtins
import importlib.resources
import importlib.util
import json
import re
import shlex
import shutil
import symtable

import pytest

from memdiag.cli.main import main
from memdiag.registry import LINT_RULES
from tests.analyzers import page_examples
from tests.lint import page_examples as lint_examples
from tests.test_outputs import DOCUMENTS, FENCED, INDENTED, ROOT, blocks, commands, name, outputs

COMPARED = re.compile(r"<!-- (?:compared by (?P<test>tests/\S+\.py)|screen:[^\n]*) -->\n\Z")
PROGRAMS = {"eval", "memdiag", "pip", "python", "export", "strings", "make", "grep", "nvidia-smi", "npu-smi"}
# They train, need a training, need a terminal, or serve until their input ends.
NEEDS_A_PROGRAM = {"bisect", "fit", "mcp", "record", "try", "view", "watch"}
ELSEWHERE = {
    "s3://": "an object store",
    "--engine ray": "a Ray cluster",
    "~/": "a Python at home",
    "--format parquet": "",
}


def fences(kind):
    """Yields the page of each fenced block of a kind, with the match."""
    for path in DOCUMENTS:
        for found in FENCED.finditer(path.read_text(encoding="utf-8")):
            if found["kind"] == kind:
                yield path, found


def compared(path, found):
    """Returns whether the comment above a block names a test, which names the page."""
    comment = COMPARED.search(found.string[: found.start()])
    if comment is None:
        return False
    test = comment["test"] or "tests/tui/page_screens.py"
    return path.name in (ROOT / test).read_text(encoding="utf-8")


def is_report(path, found):
    """Returns whether a block is the report of a findings page, which tests/analyzers and tests/lint compare."""
    text = found.string
    if path.stem in LINT_RULES:
        own = lint_examples.BLOCK.search(text)
    else:
        own = page_examples.block(text)
        if path.stem not in {*page_examples.examples(), *page_examples.CONF} and not path.stem.startswith("MD9"):
            return False
    return own is not None and found.start() <= own.start(1) < found.end()


def test_every_output_is_compared():
    uncovered = [
        f"{name(path)}: {found['text'][:60]!r}"
        for kind in ("text", "json")
        for path, found in fences(kind)
        if not compared(path, found) and not (path.parent.name == "findings" and is_report(path, found))
    ]
    assert uncovered == []


def test_every_console_block_is_written_again():
    for path, found in fences("console"):
        if path.name != "tutorial.md":
            assert any(
                found.start() <= match.start("command") < found.end() for match in outputs.BLOCK.finditer(found.string)
            ), f"{name(path)}: {found['text'][:60]!r}"


def test_kinds_of_blocks_are_known():
    kinds = {found["kind"] for path in DOCUMENTS for found in FENCED.finditer(path.read_text(encoding="utf-8"))}
    assert kinds <= {"console", "text", "json", "python", "bash", "sh", "yaml", "toml", "notation"}
    for path in DOCUMENTS:  # FENCED sees every fence
        text = path.read_text(encoding="utf-8")
        assert text.count("```") == 2 * len(FENCED.findall(text)), name(path)


def test_indented_blocks_are_commands():
    for path in DOCUMENTS:
        text = re.sub(
            r"^::: .*\n(?:    .*\n)*", "", FENCED.sub("", path.read_text(encoding="utf-8")), flags=re.MULTILINE
        )
        lists = re.sub(r"(?m)^(?:\*|\d+\.) .*\n(?:\n? +.*\n)*", "", text)
        for block in INDENTED.findall(lists):
            for line in block.splitlines():
                assert line.split()[0] in PROGRAMS, (
                    f"{name(path)}: {line!r} is not a command: fence it, and mark its kind"
                )


def _keys(shape):
    """Returns the names in quotes that are not values."""
    values = r'"[^"]*"'
    named = re.sub(rf'": (?:\[{values}(?:, (?:{values}|…))*\]|{values}(?: or {values})*)', '":', shape)
    return set(re.findall(r'"(\w+)"', named))


def _properties(schema):
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for each in schema.values():
            yield from _properties(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _properties(each)


def test_the_shape_of_json_has_keys_of_its_schema():
    seen = 0
    for path, found in fences("notation"):
        if '"schema_version"' not in found["text"]:
            continue
        command = {"settings": "conf"}.get(path.stem, path.stem)
        schema = json.loads((ROOT / "docs" / "json" / f"{command}.schema.json").read_text(encoding="utf-8"))
        assert _keys(found["text"]) - set(_properties(schema)) == set(), name(path)
        seen += 1
    assert seen >= 6


# --------------------------------------------------------------------------------------------------------------- Python


def free_names(text):
    """Returns the names that a block uses and does not define."""
    scopes = [symtable.symtable(text, "page", "exec")]
    defined, used = set(), set()
    for scope in scopes:
        scopes += scope.get_children()
        for each in scope.get_symbols():
            if scope.get_type() == "module" and (each.is_assigned() or each.is_imported() or each.is_namespace()):
                defined.add(each.get_name())
            elif each.is_referenced() and (each.is_global() or scope.get_type() == "module"):
                used.add(each.get_name())
    return used - defined - set(dir(builtins))


ALONE = [(path, text) for path, text in blocks("python") if not free_names(text)]


@pytest.mark.parametrize(
    ("path", "text"), [pytest.param(*each, id=f"{name(each[0])}-{n}") for n, each in enumerate(ALONE)]
)
def test_python_that_stands_alone_runs(path, text, tmp_path, monkeypatch):
    for node in ast.walk(ast.parse(text)):
        for module in [each.name for each in node.names] if isinstance(node, ast.Import) else ():
            pytest.importorskip(module.partition(".")[0])
    if "memdiag.live(" in text:  # it lists the tensors of a program that uses torch
        pytest.importorskip("torch")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.resources, "files", lambda _: ROOT)  # the wheel has docs/ in the package
    if "tables/" in text:  # made by the example above it
        assert main(["export", "examples/gpt-train.pickle", "-o", "tables/", "--format", "csv"]) == 0
    exec(compile(text, name(path), "exec"), {"__name__": "page"})  # noqa: S102 - our own pages


def test_most_parts_of_programs_name_functions_of_torch_that_exist():
    torch = pytest.importorskip("torch")
    seen = set()
    for path, text in blocks("python"):
        for node in ast.walk(ast.parse(text)):
            dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if re.fullmatch(r"torch(\.\w+)+", dotted):
                held, words = torch, dotted.split(".")[1:]
                for at, word in enumerate(words):
                    if not hasattr(held, word) and at < len(words) and hasattr(held, "__path__"):
                        spec = importlib.util.find_spec(f"{held.__name__}.{word}")
                        assert spec is not None, f"{name(path)}: {dotted}"
                        held = importlib.import_module(spec.name)
                        continue
                    if isinstance(held, type) or not hasattr(held, "__name__"):
                        break  # an attribute of an object
                    assert hasattr(held, word), f"{name(path)}: {dotted}"
                    held = getattr(held, word)
                seen.add(dotted)
    assert len(seen) > 20


# ------------------------------------------------------------------------------------------------------------- commands

TRACES = {
    **dict.fromkeys(("trace.pkl", "trace.pickle", "before.pkl", "a.pkl", "cuda.pkl"), "cuda-2.13.0-recorded"),
    "failed.pkl": "cuda-2.13.0-oom",
    **dict.fromkeys(("skew-0.pkl", "skew-1.pkl"), "cuda-2.13.0-recorded"),
    **dict.fromkeys(("after.pkl", "b.pkl", "simulated.pkl", "other.pkl"), "cuda-2.15.0-train"),
    "npu.pkl": "npu-2.13.0-recorded",
    "memdiag-20261122-101500/rank0.pkl": "cuda-2.13.0-recorded",
    "memdiag-20261121-213027/rank0.pkl": "cuda-2.13.0-recorded",
    "memdiag-20261121-213027/rank1.pkl": "cuda-2.13.0-oom",
    "memdiag-20261121-213027/batch=6/rank0.pkl": "cuda-2.13.0-recorded",
    "memdiag-20261121-213027/batch=7/rank0.pkl": "cuda-2.13.0-oom",
    **{f"run/rank{rank}.pkl": "cuda-2.13.0-recorded" for rank in range(2)},
    **{f"{run}/rank{rank}.pkl": "cuda-2.13.0-recorded" for run in ("run-a", "run-b") for rank in range(4)},
    **{f"runs/{run}/rank{rank}.pkl": "cuda-2.13.0-oom" for run in "ab" for rank in range(2)},
    "memdiag-run/rank0.pkl": "cuda-2.13.0-oom",
    **{f"shared/run17/rank{rank}.pkl": "cuda-2.13.0-oom" for rank in (516, 517)},
    **{f"rank{rank}/rank{rank}.pkl": "npu-2.13.0-recorded" for rank in (0, 517, 1023)},
}
OTHERS = {
    "train.log": "examples/oom.log",
    "logs/rank0.log": "examples/oom.log",
    "memdiag-20261121-213027/batch=7/output.txt": "examples/llama-oom.log",
    "Llama-3.1-8B/config.json": "tests/serving/models/toy/config.json",
    "model/config.json": "tests/serving/models/toy/config.json",
    "vllm.log": "tests/serving/logs/vllm_now.log",
    "sglang.log": "tests/serving/logs/sglang.log",
    "train.py": "examples/train.py",
    "src/train.py": "examples/train_gpt.py",
}


PROFILE = """\
Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),\
Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),\
Release Total Allocated(MB),Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type
aten::mm,512.5,1736405443000010,1736405443000030,1736405443000029,,,10.5,20,10.5,10,20,10,7,NPU:0
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder that has the files named in commands."""
    for target, golden in TRACES.items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / "goldens" / golden / "snapshot.pickle", tmp_path / target)
    for target, source in OTHERS.items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, tmp_path / target)
    pickled = base64.b64encode((tmp_path / "trace.pkl").read_bytes()).decode()
    (tmp_path / "trace.html").write_text(f"<!doctype html><script>const snapshot = '{pickled}'</script>")
    (tmp_path / "profile.csv").write_text(PROFILE)
    (tmp_path / "lifespans.csv").write_text("id,lower,upper,size\n0,0,2,4096\n1,1,3,8192\n")
    (tmp_path / "offload.json").write_text('{"link": "pcie5x16"}')
    shutil.make_archive(str(tmp_path / "logs"), "zip", tmp_path / "logs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("MEMDIAG_REDACT", "0")  # --redact sets it
    return tmp_path


TYPED = list(commands(workflows=False))
RUN = {path: [line for page, line in TYPED if page == path] for path, _ in TYPED}


@pytest.mark.parametrize(("path", "lines"), [pytest.param(*each, id=name(each[0])) for each in RUN.items()])
def test_commands_of_a_page_succeed(path, lines, place, capsys):
    failed = []
    for line in lines:
        words = shlex.split(
            (line if path.stem != "oom" else line.replace("trace.pkl", "failed.pkl")).replace("/shared/", "shared/"),
            comments=True,
        )
        words = words[: next((at for at, word in enumerate(words) if word in {"|", ">", "2>&1", "&&", "||"}), None)]
        if words[1] in NEEDS_A_PROGRAM or "record" in words or any(each in line for each in ELSEWHERE):
            continue
        expanded = [
            file
            for word in words[1:]
            for file in (sorted(map(str, place.glob(word))) if "*" in word and words[1] == "plot" else [word])
        ]
        if main(expanded) not in {0, 1}:
            failed.append(f"{line}: {capsys.readouterr().err}")
    assert failed == []
