"""``memdiag plan`` writes its output forms and files, and refuses invalid input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from memdiag.cli.main import main
from memdiag.errors import MemdiagError
from memdiag.runs import planning

TRAINING = Path(__file__).parents[1] / "goldens" / "cuda-2.13.0-train" / "snapshot.pickle"
ROWS = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text(ROWS)
    return path


def planned(capsys, *options):
    code = main(["plan", *(str(option) for option in options), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_list(capsys, listed, tmp_path):
    target = tmp_path / "offsets.csv"
    code, shown = planned(capsys, listed, "--capacity", 12, "-o", target)
    assert code == 0
    assert (shown["live_peak_bytes"], shown["height_bytes"], shown["ratio"], shown["fits"], shown["stop_reason"]) == (
        12,
        12,
        1.0,
        True,
        "load",
    )
    assert (shown["alignment_bytes"], shown["interval_ends"], shown["num_buffers"], shown["verified"]) == (
        1,
        "half-open",
        5,
        True,
    )
    assert set(shown["height_bytes_by_method"]) == {"first_fit_by_size", "online_first_fit", "online_best_fit"}
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert [row["id"] for row in rows] == ["b1", "b2", "b3", "b4", "b5"]
    assert [(row["lower"], row["upper"], row["size"]) for row in rows][1] == ("3", "9", "4")
    assert len({row["offset"] for row in rows[:1] + rows[2:3] + rows[4:]}) == 3


def test_which_ends_are_alive(capsys, listed, tmp_path):
    assert planned(capsys, listed, "--ends", "closed")[1]["live_peak_bytes"] == 16
    assert planned(capsys, listed, "--ends", "open")[1]["live_peak_bytes"] == 12
    older = tmp_path / "older.csv"
    older.write_text("id,start,end,size\na,0,3,4\nb,3,9,4\n")
    target = tmp_path / "offsets.csv"
    shown = planned(capsys, older, "-o", target)[1]
    assert (shown["interval_ends"], shown["live_peak_bytes"]) == ("closed", 8)
    assert "a,0,3,4," in target.read_text()


def test_it_does_not_fit(capsys, listed):
    code, shown = planned(capsys, listed, "--capacity", 11)
    assert (code, shown["fits"], shown["lower_bound_bytes"]) == (1, False, 12)
    assert main(["plan", str(listed), "--capacity", "11"]) == 1
    assert capsys.readouterr().out.startswith("CANNOT FIT")


def test_a_trace(capsys, tmp_path):
    target = tmp_path / "offsets.csv"
    code, shown = planned(capsys, TRAINING, "-o", target)
    assert code == 0
    assert shown["alignment_bytes"] == 512
    assert shown["live_peak_bytes"] <= shown["height_bytes"] <= 1.02 * shown["live_peak_bytes"]
    assert shown["recorded_peak_reserved_bytes"] > shown["live_peak_bytes"] >= shown["requested_peak_bytes"]
    assert len(target.read_text().splitlines()) == shown["num_buffers"] + 1


def test_in_words(capsys, listed):
    assert main(["plan", str(listed)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("PLANNED  5 buffers in 12 B, 1.0000 times")
    assert "best fit, in time order" in text
    assert main(["plan", str(TRAINING)]) == 0
    assert "recorded reserved peak" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--capacity", "much"], "error: not a size: 'much'"),
        (["--align", "0"], "error: --align 0:"),
        (["--seconds", "0"], "error: --seconds 0:"),
        (["--ends", "both"], "error: --ends both:"),
        (["--device", "0"], "error: --device chooses a device of a trace"),
    ],
)
def test_options_that_cannot_be(capsys, listed, options, said):
    assert main(["plan", str(listed), *options]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(said)
    assert "\nhint: " in shown


def test_files_that_cannot_be(capsys, listed, tmp_path):
    assert main(["plan", str(listed), "-o", str(listed)]) == 2
    assert listed.read_text() == ROWS
    assert main(["plan", str(listed), "-o", str(tmp_path / "no" / "such.csv")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert main(["plan", str(TRAINING), "--ends", "open"]) == 2
    assert main(["plan", str(TRAINING), "--device", "9"]) == 2
    assert "the trace does not contain device 9" in capsys.readouterr().err


@pytest.mark.parametrize("row", ["x,0,3", "x,0,3,-4", "x,5,3,4", "x,0,3,many"])
def test_rows_that_cannot_be(capsys, tmp_path, row):
    path = tmp_path / "list.csv"
    path.write_text(f"id,lower,upper,size\na,0,3,4\n{row}\n")
    assert main(["plan", str(path)]) == 2
    assert "is not a CSV file of tensor lifetimes, or is damaged" in capsys.readouterr().err


def test_buffers_are_planned_from_python(listed, tmp_path, capsys):
    buffers = planning.read_buffers(listed)
    report = planning.plan_buffers(buffers, seconds=1, output=tmp_path / "out.csv")
    assert report.num_buffers == len(buffers.ids)
    assert report.live_peak_bytes <= report.lower_bound_bytes <= report.height_bytes
    assert (tmp_path / "out.csv").read_text().startswith("id,lower,upper,size,offset\n")
    with pytest.raises(MemdiagError, match="--device chooses a device of a trace"):
        planning.read_buffers(listed, device=0)
    assert capsys.readouterr() == ("", "")
