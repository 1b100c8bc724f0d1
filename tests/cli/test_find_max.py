"""``memdiag record --find-max`` finds the largest value that fits in few runs, and reports if there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.render.find_max.words import notes
from memdiag.results.find_max import LargestFit, Trial, ValueRange
from memdiag.runs.find_max import find_max, next_place, read_range
from memdiag.runs.recording import Order
from memdiag.units import MIB
from tests.forking import memdiag_command

ROOT = Path(__file__).parents[2]
FAKE_TORCH = ROOT / "tests" / "recorder" / "fake_torch"
MESSAGE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
PROGRAM = f"""
import sys, torch
batch, most = int(sys.argv[1]), int(sys.argv[2])
for _ in range(2):
    kept = torch.empty(1000 * min(batch, most))
    torch.step()
if batch > most:
    sys.exit({MESSAGE!r})
"""


def found(folder, asked, *command, options=(), before=()):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MEMDIAG", "PYTHON", "RANK"))
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(FAKE_TORCH)])
    words = [*memdiag_command(), *before, "record", "--find-max", asked, *options, "--", *command]
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def trained(folder, asked, most, options=()):
    return found(folder, asked, sys.executable, "-c", PROGRAM, "{batch}", str(most), options=options)


def test_the_largest_that_fits(tmp_path):
    done = trained(tmp_path, "batch=1..64", 11, ["--json"])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["largest_fitting"], report["smallest_failing"], report["notes"]) == (11, 12, [])
    assert "did not try values above the first failure" in report["assumption"]
    tried = {trial["value"]: trial for trial in report["trials"]}
    assert tried[11]["fits"]
    assert not tried[12]["fits"]
    assert "Tried to allocate 20.00 MiB" in tried[12]["failure"]
    assert tried[11]["peak_allocated_bytes"] >= 11_000
    assert "batch=1 fits" in done.stderr
    (run,) = tmp_path.glob("memdiag-*")
    assert sorted(path.name for path in run.iterdir()) == ["batch=11", "batch=12", "find-max.json"]
    assert (run / "batch=11" / "rank0.pkl").exists()
    assert MESSAGE in (run / "batch=12" / "output.txt").read_text()
    assert json.loads((run / "find-max.json").read_text()) == report
    assert not (tmp_path / "trace.pkl").exists()


def test_redacted_it_keeps_neither_paths_nor_what_the_program_said_of_them(tmp_path):
    program = f"print('from /home/alicewong/secret/x.py')\n{PROGRAM}"
    done = found(tmp_path, "batch=1..2", sys.executable, "-c", program, "{batch}", "1", before=["--redact"])
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.glob("memdiag-*")
    output = (run / "batch=2" / "output.txt").read_text()
    assert "from x.py" in output
    assert MESSAGE in output
    assert json.loads((run / "find-max.json").read_text())["largest_fitting"] == 1
    texts = [path.read_bytes() for path in run.rglob("*") if path.is_file()]
    assert not any(b"alicewong" in text or str(tmp_path).encode() in text for text in texts)


def test_a_table_for_people(tmp_path):
    done = trained(tmp_path, "batch=8..32:8", 16, ["-q"])
    assert "batch=16 is the largest value that fits. batch=24 does not fit: torch.OutOfMemoryError" in done.stdout
    assert "assumes that a larger value needs at least as much memory" in done.stdout
    assert [line.split()[:2] for line in done.stdout.splitlines()[-4:]] == [
        ["8", "fits"],
        ["16", "fits"],
        ["24", "out"],
        ["32", "out"],
    ]
    assert done.stderr == ""


def test_the_value_below_the_answer_is_tried(tmp_path):
    program = PROGRAM.replace("if batch > most", "if batch > most or batch == 10")
    done = found(tmp_path, "batch=1..64", sys.executable, "-c", program, "{batch}", "11", options=["--json"])
    report = json.loads(done.stdout)
    assert (report["largest_fitting"], report["smallest_failing"], len(report["notes"])) == (11, 12, 1)
    assert report["notes"][0].startswith("batch=10 does not fit, although batch=11 does")
    (run,) = tmp_path.glob("memdiag-*")
    assert sorted(path.name for path in run.iterdir()) == ["batch=11", "batch=12", "find-max.json"]


def test_all_fit_and_none_fits(tmp_path):
    done = trained(tmp_path, "batch=1..64", 64)
    assert (done.returncode, done.stdout.count("  fits ")) == (0, 2)
    assert "batch=64 fits. It is the largest value of the range" in done.stdout
    done = trained(tmp_path, "batch=2..64", 1)
    assert done.returncode == 1
    assert "Not even batch=2 fits" in done.stdout


def test_another_failure_is_no_answer(tmp_path):
    program = "import sys; print('about to fail'); raise SystemExit('no data at ' + sys.argv[1])"
    done = found(tmp_path, "batch=1..64", sys.executable, "-c", program, "data{batch}")
    assert done.returncode == 2
    assert "batch=1: the command failed with exit status 1, for a reason other than memory" in done.stderr
    assert {"  about to fail", "  no data at data1"} <= set(done.stderr.splitlines())
    assert "\\n" not in done.stderr
    assert "output.txt" in done.stderr


def test_a_kill_is_no_answer_either(tmp_path):
    done = found(tmp_path, "batch=1..64", sys.executable, "-c", "import os, sys; os.kill(os.getpid(), 9)", "{batch}")
    assert done.returncode == 2
    assert "SIGKILL" in done.stderr
    assert "host (not the device)" in done.stderr


def test_what_makes_the_answer_less_certain_is_said(tmp_path):
    once = "import sys, torch; kept = torch.empty(1000); torch.step()"
    assert "ran 1 training step" in found(tmp_path, "batch=1..2", sys.executable, "-c", once, "{batch}").stdout
    assert "nothing was recorded" in found(tmp_path, "batch=1..2", sys.executable, "-c", "pass", "{batch}").stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch", "not a range"),
        ("batch=4..2", "this range is empty"),
        ("seq=1..2", "does not contain the placeholder {seq}"),
        ("batch=1..2:0", "this range is empty"),
    ],
)
def test_what_cannot_be_asked(text, says):
    with pytest.raises(MemdiagError, match=says):
        read_range(text, ["python", "train.py", "--batch={batch}"])


def test_ranges_with_steps():
    values = read_range("seq = 512..2000:512", ["{seq}"])
    assert [values.at(place) for place in range(values.last + 1)] == [512, 1024, 1536]


def search(most, needs, capacity, values):
    """Returns the number of runs until the answer is known; ``needs`` gives the bytes that a run needs."""
    fits, fails, trials = -1, values.last + 1, []
    while fails - fits > 1 and fails > 0:
        place = next_place(trials, values, fits, fails, capacity)
        assert fits < place < fails
        trials.append(Trial(place, values.at(place), place <= most, None, needs(values.at(place)), None, 2, 1.0, ""))
        fits, fails = (place, fails) if place <= most else (fits, place)
    assert fits == most
    return len(trials)


@pytest.mark.parametrize("most", [-1, 0, 1, 5, 100, 254, 255])
@pytest.mark.parametrize("capacity", [None, 1_000_000])
def test_every_answer_is_found_whatever_the_peaks_say(most, capacity):
    values = ValueRange("batch", 1, 256)
    for needs in (
        lambda _: None,
        lambda _: 7,
        lambda value: 1000 * value,
        lambda value: 40_000 - value**2,
        lambda value: value**3,
    ):
        assert search(most, needs, capacity, values) <= 16


def test_memory_that_grows_evenly_takes_few_runs():
    # 99 fit, because a run needs 10,000 bytes plus 9,999 for each.
    assert search(98, lambda value: 10_000 + 9_999 * value, 1_000_000, ValueRange("batch", 1, 1024)) <= 6


def test_it_is_called_from_python(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", str(FAKE_TORCH))
    (tmp_path / "train.py").write_text(PROGRAM)
    command = (sys.executable, str(tmp_path / "train.py"), "{batch}", "5")
    tried = []
    found = find_max(
        Order(command, {"backends": ("cpu",)}, str(tmp_path / "runs")),
        "batch=1..16",
        on_trial=lambda _, trial: tried.append(trial.value),
    )
    assert (found.largest_fitting, found.smallest_failing) == (5, 6)
    assert tried == [trial.value for trial in found.trials]
    assert json.loads((tmp_path / "runs" / "find-max.json").read_text())["largest_fitting"] == 5
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("capacity", "says"),
    [(None, 1), (1000 * MIB, 1), (900 * MIB, 2), (100 * MIB, 2)],
)
def test_unknown_scratch_memory_widens_the_answer(capacity, says):
    values = ValueRange("batch", 1, 8)
    trials = tuple(
        Trial(
            place, value, value < 8, 200 * MIB * place, 180 * MIB * place, capacity, 2, 1.0, "", unknown_bytes=128 * MIB
        )
        for place, value in ((1, 2), (4, 5), (7, 8))
    )
    said = notes(LargestFit(values, trials, 5, 8, "cuda:a100-80g", ""))
    assert "allocated peak would be between 720.00 MiB and 848.00 MiB" in str(said[0])
    assert len(said) == says
    if capacity == 900 * MIB:
        assert "batch=2" in str(said[1])
    if capacity == 100 * MIB:
        assert "none of the tried values certainly fits" in str(said[1])
