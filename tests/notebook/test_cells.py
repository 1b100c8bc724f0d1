"""A notebook with the cell magic, executed without a browser, and its page in Chromium."""

import json
import re
from pathlib import Path

import pytest

import memdiag
from memdiag.notebook.html import framed
from memdiag.results.prediction import Prediction
from tests.frameworks import run_program, trainers_python

PROGRAM = Path(__file__).parent / "programs" / "run_notebook.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    python = trainers_python("nbclient", "ipykernel", "torch")
    folder = tmp_path_factory.mktemp("notebook")
    run_program(python, PROGRAM, str(folder))
    return folder


@pytest.fixture(scope="module")
def cells(folder):
    return [cell["outputs"] for cell in json.loads((folder / "executed.ipynb").read_text())["cells"]]


def html(output):
    return "".join(output.get("data", {}).get("text/html", []))


def test_a_recorded_cell_shows_the_page_and_its_value(cells, folder):
    page, value = cells[1]
    assert '<iframe sandbox="allow-scripts"' in html(page)
    assert "".join(page["data"]["text/plain"]).startswith("Peak ")
    assert value["data"]["text/plain"] == ["3"]
    assert (folder / "kept" / "cell.html").exists()
    device = memdiag.load(folder / "kept" / "cell.pkl").devices[0]
    assert (device.tensors.requested_bytes == 300 * 1000 * 4).sum() == 3


def test_the_output_of_a_cell_is_named_as_holder(cells):
    text = "".join("".join(output.get("text", [])) for output in cells[3])
    assert re.search(r"(Out\[3\]|_3?) \(output of a cell\)", text), text  # IPython has several names for it
    assert "the autograd graph of losses[0]" in text


def test_results_show_tables(cells):
    assert "kept/cell.pkl" in html(cells[4][0])
    assert "<table>" in html(cells[5][0])


def test_a_failed_cell_shows_the_diagnosis_and_one_error(cells):
    assert "confidence" in html(cells[6][0])
    assert [each["output_type"] for each in cells[6]].count("error") == 1
    assert "has no option --wrong" in cells[7][-1]["evalue"]


def test_the_page_works_in_its_frame(chromium, folder):
    page, problems = chromium.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.goto((folder / "page.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.get_by_text("Memory over the trace").wait_for(timeout=60_000)
    frame.get_by_role("heading", level=1).first.wait_for(timeout=60_000)
    assert problems == []
    page.close()


def test_names_from_a_trace_cannot_add_elements():
    assert "<script>" not in framed('"><script>alert(1)</script>')
    prediction = Prediction(**dict.fromkeys(Prediction.__dataclass_fields__, 0) | {"policy": "<script>", "fits": None})
    assert "<script>" not in prediction._repr_html_()
    assert "&lt;script&gt;" in prediction._repr_html_()
