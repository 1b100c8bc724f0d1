"""``memdiag plot`` writes the requested files, and refuses invalid input."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from memdiag.cli.main import main
from memdiag.runs.pictures import files_of

GOLDENS = Path(__file__).parents[1] / "goldens"
OOM = GOLDENS / "cuda-2.13.0-oom" / "snapshot.pickle"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plotted(*options):
    return main(["plot", *(str(option) for option in options), "--dpi", "40"])


def test_a_timeline_named_after_its_trace(elsewhere, capsys):
    assert plotted(OOM) == 0
    assert (elsewhere / "snapshot-timeline.png").read_bytes()[:4] == b"\x89PNG"
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "wrote snapshot-timeline.png" in shown.err


def test_several_kinds_and_forms(elsewhere, capsys):
    assert plotted(OOM, "-k", "map,policies", "-o", "figure.svg", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema_version"] == 1
    assert [(each["file"], each["kind"], each["device"]) for each in told["pictures"]] == [
        ("figure-map.svg", "map", 0),
        ("figure-policies.svg", "policies", 0),
    ]
    assert all((elsewhere / each["file"]).stat().st_size == each["bytes"] for each in told["pictures"])
    policies = (elsewhere / "figure-policies.svg").read_text()
    assert "expandable" in policies
    assert "calibrated" in policies


def test_a_folder_is_made(elsewhere):
    assert plotted(OOM, OOM, "-k", "map", "-o", "figures/of/mine") == 0
    assert [path.name for path in (elsewhere / "figures" / "of" / "mine").iterdir()] == ["snapshot-map.png"]


def test_policies_as_asked_for(elsewhere):
    assert (
        plotted(
            OOM,
            "-k",
            "policies",
            "--policy",
            "caching",
            "--conf",
            "max_split_size_mb:32",
            "--capacity",
            "1GiB",
            "-o",
            "p.svg",
        )
        == 0
    )
    text = (elsewhere / "p.svg").read_text()
    assert "max_split_size_mb:32" in text
    assert "expandable" not in text


def test_a_map_of_another_moment(elsewhere):
    assert plotted(OOM, "-k", "map", "--at", "oom", "-o", "m.svg") == 0
    assert "event 66" in (elsewhere / "m.svg").read_text()
    assert (
        plotted(
            OOM, "-k", "map", "--at", "20", "--style", "dark", "--size", "20x12cm", "--title", "Mine", "-o", "m.svg"
        )
        == 0
    )
    text = (elsewhere / "m.svg").read_text()
    assert "event 20" in text
    assert "Mine" in text


def test_names_of_files():
    one, other = Path("a/rank0.pkl"), Path("b/rank0.pkl")
    assert files_of([one], ["map"], None) == {(one, "map"): Path("rank0-map.png")}
    assert files_of([one], ["map"], Path("x.pdf")) == {(one, "map"): Path("x.pdf")}
    assert files_of([one], ["map", "timeline"], Path("x.pdf"))[one, "timeline"] == Path("x-timeline.pdf")
    assert files_of([one], ["map"], Path("out")) == {(one, "map"): Path("out/rank0-map.png")}
    assert set(files_of([one, other], ["map"], Path("out")).values()) == {
        Path("out/a-rank0-map.png"),
        Path("out/b-rank0-map.png"),
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-k", "timelime"], "did you mean timeline"),
        (["-o", "x.gif"], "does not know a picture format with this ending"),
        (["-o", "nowhere/x.png"], "cannot be written"),
        (["--size", "big"], "not a size"),
        (["--size", "60x60", "--dpi", "1200"], "million pixels"),
        (["--style", "pink"], "does not know this style"),
        (["--device", "5"], "does not contain device 5"),
        (["-k", "map", "--at", "noon"], "does not know this moment"),
        (["-k", "map", "--at", "9999"], "does not contain event 9999"),
        (["--at", "9999"], "does not contain event 9999"),
        (["-k", "map", "--policy", "caching"], "work with --kind policies, not with map"),
        (["-k", "policies", "--policy", "offload"], "cannot be drawn next to other policies"),
        (["-k", "policies", "--policy", "caching", "--conf", "nonsense:1"], "refuses"),
    ],
)
def test_what_is_refused(options, said, capsys, elsewhere):
    assert main(["plot", str(OOM), *options]) == 2
    assert said in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


def test_a_picture_that_cannot_be_drawn_leaves_the_others(elsewhere, capsys):
    trace = GOLDENS / "cuda-2.13.0-no-trace" / "snapshot.pickle"  # no events, so no timeline
    assert plotted(trace, "-k", "timeline,map", "-o", "out", "--json") == 2
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert [each["kind"] for each in told["pictures"]] == ["map"]
    assert [each["kind"] for each in told["failed"]] == ["timeline"]
    assert "error: --kind timeline: " in shown.err
    assert "hint: " in shown.err
    assert [path.name for path in (elsewhere / "out").iterdir()] == ["snapshot-map.png"]


def test_an_error_while_writing_leaves_no_half_picture(elsewhere, capsys):
    old = elsewhere / "m.png"
    old.write_bytes(b"old")

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        assert plotted(OOM, "-k", "map", "-o", "m.png") == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "m.png cannot be written: File too large" in capsys.readouterr().err
    assert old.read_bytes() == b"old"
    assert list(elsewhere.iterdir()) == [old]


def test_the_trace_itself_is_not_overwritten(elsewhere, capsys):
    trace = elsewhere / "t.svg"
    trace.write_bytes(OOM.read_bytes())
    assert plotted(trace, "-o", "t.svg") == 2
    assert "would overwrite the trace" in capsys.readouterr().err
    assert trace.read_bytes() == OOM.read_bytes()
