"""Every ``--json`` output has a JSON Schema in docs/json, and real outputs of every command satisfy it."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import jsonschema
import pytest
import typer

from memdiag.allocator.policies import POLICIES
from memdiag.cli import main as commands
from memdiag.cli.main import main
from memdiag.render import FORMS

# Outputs whose schema name differs from the command.
NAMES = {"record": "record-find-max"}
GOLDENS = (
    "cuda-2.13.0-oom",
    "cuda-2.13.0-recorded",
    "cuda-2.13.0-no-trace",
    "cuda-2.13.0-state-only",
    "cuda-2.13.0-empty",
    "cuda-2.13.0-two-devices",
    "npu-2.13.0-recorded",
    "cpu-2.13.0-recorded",
)
CODE = """
import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())
losses = []
for batch in data:
    optimizer.zero_grad()
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    losses.append(loss)
"""
SIMULATED = [*(name for name in POLICIES if not name.startswith("npu")), "offload"]
WITH_DETAILS = {"lifecycle", "stitch", "plan", "mempool", "offload"}


@pytest.fixture(scope="module")
def script(root):
    """The script that writes the schemas."""
    spec = importlib.util.spec_from_file_location("json_schemas", root / "docs" / "json_schemas.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["json_schemas"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def schema(root):
    """Returns the schema of an output, as published."""
    return lambda name: json.loads((root / "docs" / "json" / f"{name}.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def checked(capsys, schema):
    """Runs a command with ``--json`` and validates its output."""

    def call(name, *arguments):
        assert main([*map(str, arguments), "--json"]) in {0, 1}
        shown = json.loads(capsys.readouterr().out)
        jsonschema.Draft202012Validator(schema(name)).validate(shown)
        return shown

    return call


def test_the_published_schemas_are_those_of_the_results(script, root):
    published = {path.name: path.read_text(encoding="utf-8") for path in (root / "docs" / "json").glob("*.json")}
    assert published == script.files(), "run: python docs/json_schemas.py"


def test_every_command_with_json_has_a_schema(script):
    app = typer.main.get_command(commands.app_of())
    with_json = {name for name, each in app.commands.items() if any("--json" in option.opts for option in each.params)}
    assert {NAMES.get(name, name) for name in with_json} <= {layout.name for layout in script.layouts()}


def test_every_json_form_declares_its_keys(script):
    forms = [(command, form) for command, names in FORMS.items() for form in names if form.endswith("json")]
    assert len(list(script.layouts())) == len(forms) == len({layout.name for layout in script.layouts()})


def test_the_details_of_every_policy_are_in_the_schema(script, root):
    found = set()
    for path in (root / "memdiag").rglob("detail.py"):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        own = vars(import_module(name)).values()
        found |= {each for each in own if isinstance(each, type) and is_dataclass(each) and "key" in vars(each)}
    assert found == set(script.MORE["Prediction"])


def objects(schema):
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


def test_schemas_are_valid_closed_and_explained(script):
    for layout in script.layouts():
        written = script.schema_of(layout)
        jsonschema.Draft202012Validator.check_schema(written)
        for each in objects(written):
            assert each.get("additionalProperties", False) is False
            for key, value in each["properties"].items():
                if isinstance(value, dict) and "type" not in key:
                    assert value.get("description", "").strip(), f"{layout.name}: {key}"


@pytest.mark.parametrize("name", GOLDENS)
def test_analyze(checked, goldens, name):
    checked("analyze", "analyze", goldens / name / "snapshot.pickle", "--would-fit", "20MiB")


@pytest.mark.parametrize("policy", SIMULATED)
def test_simulate(checked, goldens, policy):
    found = checked("simulate", "simulate", goldens / "cuda-2.13.0-recorded" / "snapshot.pickle", "--policy", policy)
    assert policy not in WITH_DETAILS or len(found["results"][-1]) > 24


def test_simulate_a_failed_run(checked, goldens):
    failed = goldens / "cuda-2.13.0-oom" / "snapshot.pickle"
    checked("simulate", "simulate", failed, "--conf", "expandable_segments:True", "--min-capacity")
    checked("simulate", "simulate", goldens / "cpu-2.13.0-recorded" / "snapshot.pickle", "--policy", "expandable")


def test_tune_and_plan(checked, goldens, tmp_path):
    failed = goldens / "cuda-2.13.0-oom" / "snapshot.pickle"
    assert checked("tune", "tune", failed)["recommended"]
    checked("tune", "tune", goldens / "npu-2.13.0-train" / "snapshot.pickle")
    checked("plan", "plan", failed, "--capacity", "8GiB", "-o", tmp_path / "plan.csv")
    buffers = tmp_path / "buffers.csv"
    buffers.write_text("id,lower,upper,size\na,0,3,4\nb,1,5,4\n")
    checked("plan", "plan", buffers)


def test_compare_and_check(checked, goldens, tmp_path):
    one, other = (goldens / name / "snapshot.pickle" for name in ("cuda-2.13.0-recorded", "npu-2.13.0-recorded"))
    checked("compare", "compare", one, other)
    checked("compare", "compare", one, goldens / "cuda-2.13.0-no-trace" / "snapshot.pickle")
    base = tmp_path / "base.json"
    checked("check", "check", other, "--baseline", base, "--update")
    assert checked("check", "check", one, "--baseline", base)["status"] == "failed"
    checked("check", "check", one, "--budget", "peak_reserved=1MiB", "--budget", "stranded=1%")


def test_fleet(checked, goldens, tmp_path):
    for rank, name in enumerate(("cuda-2.13.0-oom", "cuda-2.13.0-train", "cuda-2.13.0-retries")):
        (tmp_path / f"rank{rank}.pkl").write_bytes((goldens / name / "snapshot.pickle").read_bytes())
    (tmp_path / "rank3.pkl").write_bytes(b"no trace")
    found = checked("fleet", "fleet", tmp_path, "--tune", "--workers", "1")
    assert found["unreadable"]
    assert found["ranks"][0]["last_failure"]
    assert found["tuned"]["search"]["recommended"]


def test_oom(checked, root, shared, tmp_path):
    checked("oom", "oom", root / "examples" / "oom.log")
    trace = root / "tests" / "goldens" / "cuda-2.13.0-oom" / "snapshot.pickle"
    checked("oom", "oom", "--from-trace", trace)
    rows = (shared / "data" / "oom" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    for number, row in enumerate(rows):
        (tmp_path / f"{number:04}.log").write_text(
            str(json.loads(row).get("text") or json.loads(row)), encoding="utf-8"
        )
    assert len(checked("oom", "oom", *sorted(tmp_path.glob("*.log")))["messages"]) > len(rows) // 2


def test_settings_and_code(checked, tmp_path):
    checked("conf", "conf", "max_split_size_mb:16,expandable_segments:True,no_such:1")
    checked("conf-list", "conf", "--list")
    code = tmp_path / "train.py"
    code.write_text(CODE)
    assert checked("lint", "lint", code)["findings"]


def test_pages_devices_and_this_machine(checked):
    checked("explain", "explain", "MD201")
    checked("devices", "devices")
    model = Path(__file__).parent / "serving" / "models" / "toy"
    checked("serve-fit", "serve-fit", model, "--device", "a100-40g")
    checked("serving", "serving", Path(__file__).parent / "serving" / "logs" / "vllm_capture_fails.log")
    checked("doctor", "doctor", "--python", sys.executable)


def test_written_files(checked, goldens, tmp_path):
    trace = goldens / "cuda-2.13.0-recorded" / "snapshot.pickle"
    checked("export", "export", trace, "--format", "speedscope", "-o", tmp_path / "trace.json")
    checked("plot", "plot", trace, "--kind", "timeline", "-o", tmp_path / "timeline.svg")


def test_a_search_for_the_largest_value(schema, tmp_path):
    from tests.cli.test_find_max import trained

    done = trained(tmp_path, "batch=1..8", 3, ["--json"])
    shown = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema("record-find-max")).validate(shown)
    (written,) = tmp_path.glob("memdiag-*/find-max.json")
    assert json.loads(written.read_text(encoding="utf-8")) == shown


def test_a_rerun(schema, tmp_path, root):
    from memdiag.recorder.launch import ProgramEnd
    from memdiag.recorder.run_folder import RunFolder
    from memdiag.runs.finishing import FinishedRun
    from memdiag.runs.recording import Done
    from memdiag.runs.rerun import RepeatableRun
    from memdiag.runs.trying import compare, predict

    trace, folder = root / "examples" / "gpt-train.pickle", RunFolder(str(tmp_path), "")
    run = RepeatableRun(tmp_path, {"argv": ["python"], "cwd": str(tmp_path), "phantom": None}, (trace,))
    finished = FinishedRun(folder, ({"trace": str(trace)},), (), None, (), any_python=True)
    compare(predict(run, ""), Done(folder, ProgramEnd(0, 1.0), finished))
    written = json.loads((tmp_path / "try.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema("try")).validate(written)
