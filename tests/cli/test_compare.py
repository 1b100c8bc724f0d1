"""``memdiag compare`` reports differences of traces in every form, and refuses invalid input."""

from __future__ import annotations

import json
import pickle
import re

import pytest

from memdiag.cli.main import main
from memdiag.text import speaking

KEYS = [
    "schema_version",
    "memdiag_version",
    "is_same",
    "at",
    "verdicts",
    "traces",
    "lifetime_unit",
    "by_site",
    "by_name",
    "differences",
    "findings",
    "timeline",
    "notes",
]


@pytest.fixture
def said(capsys):
    """Runs the command, which must succeed, and returns its output."""

    def ask(*arguments: object) -> str:
        capsys.readouterr()
        assert main(["compare", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    return ask


@pytest.fixture
def refused(capsys):
    """Runs the command, which must fail, and returns the error."""

    def ask(*arguments: object) -> str:
        assert main(["compare", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    return ask


@pytest.fixture
def cuda(goldens):
    return goldens / "cuda-2.13.0-train" / "snapshot.pickle"


@pytest.fixture
def npu(goldens):
    return goldens / "npu-2.13.0-train" / "snapshot.pickle"


def test_json_has_the_keys_that_are_promised(said, cuda, npu):
    shown = json.loads(said(cuda, npu, "--json"))
    assert list(shown) == KEYS
    assert (shown["schema_version"], shown["is_same"]) == (2, False)
    assert [(trace["letter"], trace["facts"]["backend"]) for trace in shown["traces"]] == [("A", "cuda"), ("B", "npu")]
    for row in shown["by_site"]:
        before, after = row["amounts"]
        assert row["delta_bytes"] == [after["bytes"] - before["bytes"]]
        assert row["delta_num_tensors"] == [after["num_tensors"] - before["num_tensors"]]
    assert shown["timeline"]["aligned_by"] == "step"
    assert {row["change"][0] for row in shown["findings"]} <= {"same", "new", "gone", "better", "worse"}


@pytest.mark.parametrize("form", ["--json", "--md", "--top=2", "--at=allocated", "--at=end"])
def test_every_form_is_the_same_each_time(said, cuda, npu, form):
    assert said(cuda, npu, form) == said(cuda, npu, form) != ""


def test_identical_files_have_no_difference(said, cuda):
    assert said(cuda, cuda).startswith("B and A do not differ in anything that memdiag compares.\n")


def test_the_devices_of_one_trace_stand_beside_each_other(said, goldens):
    shown = json.loads(said(goldens / "cuda-2.13.0-two-devices" / "snapshot.pickle", "--json"))
    assert [trace["device"] for trace in shown["traces"]] == [0, 1]


def test_ranks_of_a_run_and_the_same_rank_of_two_runs(said, refused, tmp_path, cuda, npu):
    for run, files in (("a", (cuda, npu)), ("b", (npu, npu))):
        for rank, file in enumerate(files):
            (tmp_path / run).mkdir(exist_ok=True)
            (tmp_path / run / f"rank{rank}.pkl").write_bytes(file.read_bytes())
    shown = json.loads(said(tmp_path / "a", "--json"))
    assert [trace["path"].rsplit("/", 1)[-1] for trace in shown["traces"]] == ["rank0.pkl", "rank1.pkl"]
    assert json.loads(said(tmp_path / "a", tmp_path / "b", "--rank", 1, "--json"))["is_same"]
    assert "has no rank 5" in refused(tmp_path / "a", tmp_path / "b", "--rank", 5)
    assert "is not a run directory" in refused(cuda, tmp_path / "b", "--rank", 0)


def test_a_simulated_run_is_held_against_its_recording(said, tmp_path, cuda):
    out = tmp_path / "simulated.pkl"
    assert main(["simulate", str(cuda), "--policy", "expandable", "--out", str(out)]) == 0
    shown = json.loads(said(cuda, out, "--json"))
    assert {"name": "expandable segments", "values": ["no", "yes"]} in shown["differences"]
    sites = {row["label"]: row["matched"] for row in shown["by_site"] if row["places"][0] and row["places"][1]}
    assert set(map(tuple, sites.values())) <= {("base", "same"), ("base", "words")}


def test_what_it_is_refused_for(refused, cuda, tmp_path):
    assert "fewer than two traces" in refused()
    assert "there is nothing to compare it with" in refused(cuda)
    assert "does not know this moment" in refused(cuda, cuda, "--at", "noon")
    assert "this trace does not contain device 3" in refused(cuda, cuda, "--device", 3)
    assert "can be shown side by side" in refused(*[cuda] * 9)
    copy = tmp_path / "copy.pkl"
    copy.write_bytes(cuda.read_bytes())
    assert "would overwrite one of the traces" in refused(cuda, copy, "-o", copy)


def test_hostile_text_of_a_trace_does_nothing(said, tmp_path):
    hostile = "\x1b[31m</td>|`@you`\n\u202e<script>" + "x" * 500
    for name, count in (("a", 1), ("b", 2)):
        frames = [{"filename": f"/x/{hostile}.py", "line": 3, "name": hostile}]
        entries = [
            {"action": action, "addr": n << 20, "size": 1 << 20, "stream": 0, "frames": frames}
            for n in range(count)
            for action in ("segment_alloc", "alloc")
        ]
        settings = {hostile: name * 900, "PYTORCH_CUDA_ALLOC_CONF": hostile + name}
        (tmp_path / name).write_bytes(
            pickle.dumps({"segments": [], "device_traces": [entries], "allocator_settings": settings}, 4)
        )
    for form in ((), ("--md",), ("--json",)):
        text = said(tmp_path / "a", tmp_path / "b", *form)
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_redacted_comparison_tells_nobody_of_the_command(said, tmp_path, cuda, npu, monkeypatch):
    monkeypatch.delenv("MEMDIAG_REDACT", raising=False)
    for name, file in (("a", cuda), ("b", npu)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank0.pkl").write_bytes(file.read_bytes())
        (tmp_path / name / "manifest.json").write_text(
            json.dumps(
                {
                    "argv": ["python", f"--token={name}-hush"],
                    "environment": {"WANDB_DIR": f"/home/carla/{name}"},
                    "versions": {"memdiag": name},
                }
            )
        )
    monkeypatch.setenv("MEMDIAG_REDACT", "1")
    for form in ((), ("--md",), ("--json",)):
        shown = said(tmp_path / "a", tmp_path / "b", *form)
        assert not [word for word in ("hush", "carla", "WANDB", str(tmp_path)) if word in shown]
        assert "version of memdiag" in shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(said, cuda, npu, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for traces in ((cuda, npu), (cuda, npu, cuda, npu, cuda)):
        assert max(map(len, said(*traces).splitlines())) <= width


def test_a_page_beside_the_text_or_instead_of_it(said, refused, cuda, npu, tmp_path):
    page, other = tmp_path / "page.html", tmp_path / "other.html"
    told = said(cuda, npu, "--html", page)
    assert "By call site" in told
    assert said(cuda, npu, "-o", other) == ""
    assert page.read_text() == other.read_text()
    assert page.read_text().startswith("<!DOCTYPE html>")
    copy = tmp_path / "copy.pickle"
    copy.write_bytes(cuda.read_bytes())
    assert "--html" in refused(cuda, copy, "--html", copy)


def test_page_and_markdown_speak_chinese(capsys, cuda, npu, tmp_path):
    page = tmp_path / "page.html"
    with speaking("en"):  # restores the language for other tests
        assert main(["--lang", "zh", "compare", str(cuda), str(npu), "--html", str(page), "--md"]) == 0
    markdown = capsys.readouterr().out
    titles = re.findall(r"<h[123]>(.*?)</h[123]>", page.read_text())
    assert len(titles) > 6
    assert [title for title in titles if not re.search("[\u3400-\u9fff]", title)] == []
    assert markdown.startswith("## memdiag: \u8bb0\u5f55\u7684\u6bd4\u8f83")
    assert "version of" not in markdown
    assert "not set" not in markdown
