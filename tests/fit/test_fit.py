"""``memdiag fit`` from outside: on a simulated NPU, with a program whose memory is known, and with bad input."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from memdiag.cli.fit import _variables
from memdiag.fit.recordings import Recorder, RunOrder
from memdiag.phantom.experts import VARIABLE
from memdiag.phantom.launch import COMPUTE
from memdiag.sources import load
from tests.forking import memdiag_command
from tests.phantom import npu_stand_in

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
# Batches of 100 MiB, twice as many with "more"; batch 5 fails for another reason than memory.
PROGRAM = """
import sys, torch, torch_npu
batch, more = int(sys.argv[1]), sys.argv[2] == "more"
if batch == 5:
    raise RuntimeError("batches of 5 are not possible")
for _ in range(2):
    kept = [torch.empty(100 << 20, dtype=torch.uint8, device="npu") for _ in range(batch * (2 if more else 1))]
    del kept
"""


def run(folder, *arguments):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MEMDIAG", "RANK", "WORLD"))
    }
    environment |= {"PYTHONPATH": str(ROOT), "COLUMNS": "120", "NO_COLOR": "1"}
    words = [*memdiag_command(), *arguments]
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def fitted(folder, *options):
    program = folder / "program.py"
    if not program.exists():
        program.write_text(PROGRAM)
    return run(
        folder,
        "fit",
        *("--device", "npu:910b-64g,room=450MiB,npu:910b-64g,room=850MiB"),
        *("--grid", "mbs=1,2,4,5,6", "mode=less,more", *options),
        *("--", npu_stand_in.PYTHON, "program.py", "{mbs}", "{mode}"),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fit")


@pytest.fixture(scope="module")
def report(folder):
    """The report of a search, as JSON."""
    done = fitted(folder, "--json", "--html", "fit.html")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def outcomes(report):
    return {tuple(cell["values"]): [on["outcome"] for on in cell["on"]] for cell in report["cells"]}


needs_npu = npu_stand_in.needs_npu


@needs_npu
def test_what_fits_is_what_the_sizes_say(report):
    for (mbs, mode), found in outcomes(report).items():
        needed = int(mbs) * (2 if mode == "more" else 1) * 100
        for outcome, room in zip(found, (450, 850), strict=True):
            if mbs == "5" and outcome == "unknown":
                continue
            assert (outcome in {"fits", "tight"}) == (needed <= room), (mbs, mode, outcome)


@needs_npu
def test_runs_are_fewer_than_configurations_and_inferred_outcomes_name_theirs(report):
    assert report["num_runs"] < len(report["cells"])
    for cell in report["cells"]:
        for on in cell["on"]:
            assert (on["decided_by"] is not None) == (on["basis"] == "inferred")
            assert (on["trace"] is not None) == (on["basis"] == "run")


@needs_npu
def test_the_output_is_as_its_schema_says(report):
    schema = json.loads((ROOT / "docs" / "json" / "fit.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(report)


@needs_npu
def test_every_run_is_that_of_record_alone(folder, report):
    on = next(on for cell in report["cells"] for on in cell["on"] if on["basis"] == "run")
    values = next(cell["values"] for cell in report["cells"] if on in cell["on"])
    done = run(
        folder,
        "record",
        *("--phantom", "npu:910b-64g", "-q", "-o", "alone"),
        *("--", npu_stand_in.PYTHON, "program.py", *values),
    )
    assert done.returncode == 0, done.stderr
    one, other = (load(path).devices[0] for path in (folder / on["trace"], folder / "alone" / "rank0.pkl"))
    for column in ("action", "size", "addr", "stream"):
        assert (getattr(one.events, column) == getattr(other.events, column)).all(), column


@needs_npu
def test_a_second_search_continues_from_the_first(folder, report):
    (kept, *_) = sorted((folder / "memdiag-fit" / "runs").iterdir())
    (kept / "run.json").unlink()  # as if the search had been interrupted in this run
    again = json.loads(fitted(folder, "--json").stdout)
    assert again["num_reused"] in {again["num_runs"], again["num_runs"] - 1}
    assert again["num_reused"] < again["num_runs"] or (kept / "run.json").exists() is False
    assert (again["cells"], again["num_runs"]) == (report["cells"], report["num_runs"])


def test_a_run_that_a_signal_ended_is_not_kept(tmp_path):
    recorder = Recorder(tmp_path, jobs=1)
    order = RunOrder((sys.executable, "-c", "pass"), {}, "npu:910b-64g", None, None)
    recorder._run = lambda _: (143, 0)
    run = recorder.record(order)
    assert run.status == 143
    assert not (run.folder / "run.json").exists()
    recorder.stop()


@needs_npu
def test_exhaustively_the_answer_is_the_same(folder, report):
    done = fitted(folder, "--json", "--exhaustive", "--where", "mbs<5 or mode=='more'")
    every = json.loads(done.stdout)
    assert all(on["basis"] != "inferred" for cell in every["cells"] for on in cell["on"])
    before = outcomes(report)
    for values, found in outcomes(every).items():
        expected = ["unknown"] * 2 if values[0] == "5" else before[values]
        assert found == expected, values
    failed = next(cell for cell in every["cells"] if cell["values"][0] == "5")
    assert "batches of 5 are not possible" in failed["error"]
    assert "batches of 5" in (folder / failed["output"]).read_text()


@needs_npu
def test_forms_for_people(folder, report):  # noqa: ARG001 - its runs are used again
    shown = fitted(folder, "-q").stdout
    assert "npu:910b-64g,room=450MiB" in shown
    assert "out of memory" in shown
    assert "left" in shown
    rows = list(csv.DictReader(io.StringIO(fitted(folder, "-q", "--csv").stdout)))
    assert len(rows) == 20
    assert {"mbs", "mode", "device", "outcome", "peak_reserved_bytes"} <= set(rows[0])
    assert "| mbs | mode |" in fitted(folder, "-q", "--md").stdout
    page = (folder / "fit.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "mode=more" in page
    assert json.loads((folder / "memdiag-fit" / "fit.json").read_text())["num_runs"]


@needs_npu
def test_where_nothing_fits_the_closest_change_is_named(folder, report):  # noqa: ARG001 - its program and runs
    words = ["--device", "npu:910b-64g,room=350MiB", "--grid", "mbs=4", "mode=less,more"]
    program = ["--", npu_stand_in.PYTHON, "program.py", "{mbs}", "{mode}"]
    done = run(folder, "fit", *words, "-q", *program)
    assert done.returncode == 1, done.stderr
    assert "Nothing fits on npu:910b-64g,room=350MiB. The closest configuration is mbs=4 mode=less" in " ".join(
        done.stdout.split()
    )
    assert "The smallest known device on which this configuration runs is npu:" in done.stdout
    (short,) = json.loads(run(folder, "fit", *words, "-q", "--json", *program).stdout)["shortfalls"]
    assert short["values"] == ["4", "less"]
    assert 58 * MIB <= short["missing_bytes"] <= 60 * MIB  # segments of 102 MiB, and whole pages
    (effect,) = short["effects"]
    assert (effect["name"], effect["lighter"], effect["saved_bytes"]) == ("mode", "less", 408 * MIB)


def test_the_counts_of_an_assumed_load_of_experts_are_computed():
    found = _variables(["MODE=fast"], "balanced")
    assert found["MODE"] == "fast"
    assert json.loads(found[VARIABLE])["load"] == "balanced"
    assert int(found[COMPUTE]) > 0


# Of 200 MiB, 100 stay in use, and 150 MiB need a new segment unless segments can be mapped anew.
FRAGMENTS = """
import sys, torch, torch_npu
def empty(size):
    return torch.empty(size << 20, dtype=torch.uint8, device="npu")
for _ in range(2):
    large = empty(200)
    del large
    small = empty(100)
    other = empty(150)
    del small, other
    torch.npu.empty_cache()
"""


@needs_npu
def test_settings_are_found_for_a_configuration_that_fails(tmp_path):
    (tmp_path / "program.py").write_text(FRAGMENTS)
    words = ["fit", "--device", "npu:910b-64g,room=300MiB,npu:910b-64g,room=1GiB", "--grid", "mbs=1", "-q", "--json"]
    command = ["--", npu_stand_in.PYTHON, "program.py", "{mbs}"]
    found = json.loads(run(tmp_path, *words, *command).stdout)["cells"][0]["on"]
    assert [on["outcome"] for on in found] == ["fails", "fits"]
    assert "expandable_segments:True" in found[0]["setting"]
    assert 0 <= found[0]["setting_headroom_bytes"] <= 50 * MIB
    assert found[1]["setting"] is None
    kept = json.loads(run(tmp_path, *words, *command).stdout)["cells"][0]["on"]
    assert kept == found
    none = json.loads(run(tmp_path, *words, "--tune-seconds", "0", *command).stdout)["cells"][0]["on"]
    assert none[0]["setting"] is None


@needs_npu
def test_the_front_trades_the_size_of_the_card_for_work(folder, report):
    points = report["front"]
    sizes = [point["smallest_total_bytes"] for point in points]
    assert sizes == sorted(sizes)
    assert [point["at_once"] for point in points] == sorted(int(point["values"][0]) for point in points)
    assert all(point["values"][1] == "less" for point in points)
    assert "Pareto" in (folder / "fit.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "npu:910b-64g", "--grid", "mbs=1"], "the command"),
        (["--device", "npu:910b-64g", "--", "python", "t.py"], "no grid"),
        (["--grid", "mbs=1", "--", "python", "t.py", "{mbs}"], "no device"),
        (["--device", "cuda:none", "--grid", "mbs=1", "--", "python", "t.py", "{mbs}"], "none"),
        (["--device", "npu:910b-64g", "--grid", "mbs=1", "--", "python", "t.py"], "axis mbs"),
        (["--device", "npu:910b-64g", "--grid", "mbs=1", "--where", "mbs>1", "--", "python", "{mbs}"], "none of the 1"),
        (["--device", "npu:910b-64g", "--grid", "mbs=1", "--ranks", "0", "--", "python", "{mbs}"], "--world"),
        (["--device", "npu:910b-64g", "--grid", "mbs=1", "--env", "x", "--", "python", "{mbs}"], "not a variable"),
        (["--device", "npu:910b-64g", "--grid", "mbs=1", "--json", "--csv", "--", "python", "{mbs}"], "--json"),
    ],
)
def test_bad_input_is_an_error_with_a_hint(tmp_path, arguments, said):
    done = run(tmp_path, "fit", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
