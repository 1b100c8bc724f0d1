"""``memdiag check`` prints results and exit status for people and CI systems."""

from __future__ import annotations

import json
import pickle
import xml.etree.ElementTree as ET

import pytest

from memdiag.cli.main import main
from memdiag.text import speaking

MIB = 1 << 20
KEYS = [
    "schema_version",
    "memdiag_version",
    "status",
    "exit_code",
    "verdict",
    "traces",
    "missing",
    "baseline",
    "changes",
    "notes",
]


@pytest.fixture
def train(goldens):
    return goldens / "cuda-2.13.0-train" / "snapshot.pickle"


@pytest.fixture
def checked(capsys):
    """Runs the command; returns exit status, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["check", *map(str, arguments)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def run_of(tmp_path):
    """Returns a function that writes a run directory.

    ``run_of("a", [[("f", 10, 2)]])`` writes run "a" with one rank, in which function f retains two tensors of 10 MiB.
    """

    def write(name, ranks, folder="/home/ann/job", line=5):
        run = tmp_path / name
        run.mkdir(exist_ok=True)
        for rank, held in enumerate(ranks):
            entries, addr = [], 0
            for function, size, count in held:
                frames = [{"filename": f"{folder}/train.py", "line": line, "name": function}]
                for _ in range(count):
                    entry = {"addr": addr, "size": size * MIB, "stream": 0, "frames": frames}
                    entries += [{"action": action, **entry} for action in ("segment_alloc", "alloc")]
                    addr += size * MIB
            (run / f"rank{rank}.pkl").write_bytes(pickle.dumps({"segments": [], "device_traces": [entries]}, 4))
        return run

    return write


def test_budgets_that_hold_and_one_that_does_not(checked, train):
    code, out, _ = checked(train, "--budget", "peak_reserved=10GiB", "--budget", "ooms=0")
    assert (code, out.splitlines()[0]) == (0, "PASSED  All 2 within limits.")
    code, out, _ = checked(train, "--budget", "peak_reserved=100MiB", "--budget", "ooms=0")
    assert code == 1
    assert out.startswith("FAILED  peak_reserved is 314.00 MiB: 214.00 MiB over the budget of 100.00 MiB.")
    assert "what holds the memory at the peak:" in out


def test_json_has_the_keys_that_are_promised_and_is_the_same_each_time(checked, train):
    arguments = (train, "--json", "--budget", "peak_reserved=100MiB,MD201=0")
    code, out, _ = checked(*arguments)
    shown = json.loads(out)
    assert list(shown) == KEYS
    assert (code, shown["exit_code"], shown["status"]) == (1, 1, "failed")
    assert [(each["metric"], each["status"]) for each in shown["traces"][0]["checks"]] == [
        ("peak_reserved", "failed"),
        ("MD201", "ok"),
    ]
    assert shown["traces"][0]["metrics"]["peak_reserved"] == 314 * MIB
    assert checked(*arguments)[1] == out


def test_what_cannot_be_known_is_never_passed(checked, goldens):
    state = goldens / "cuda-2.13.0-state-only" / "snapshot.pickle"
    code, out, _ = checked(state, "--budget", "peak_reserved=900GiB")
    assert (code, out.split(" ")[0]) == (2, "UNKNOWN")
    assert "peak_reserved cannot be checked" in out
    assert "Which tensors were live when the file was saved:" in checked(state, "--budget", "end_reserved=1MiB")[1]
    code, out, _ = checked(state, "--budget", "end_reserved=900GiB", "--budget", "leak_per_step=1GiB")
    assert (code, "leak_per_step cannot be checked" in out) == (2, True)
    assert checked(state, "--budget", "peak=1%", "--budget", "end_reserved=1MiB")[0] == 1, "what is over is over"
    code, out, _ = checked(state, "--budget", "ooms=0", "--budget", "retries=0")
    assert (code, out.count("cannot be checked: the file does not show driver calls")) == (2, 2)


def test_a_baseline_is_written_held_against_and_brought_up_to_date(checked, run_of, tmp_path):
    base = tmp_path / "base.json"
    old = run_of("old", [[("f", 20, 2), ("g", 10, 1)]], folder="/home/ann/a/b/c/job")
    code, _, err = checked(old, "--baseline", base)
    assert (code, "this baseline does not exist yet" in err) == (2, True)
    assert checked(old, "--baseline", base, "--update")[0] == 0
    written = base.read_bytes()
    assert b"ann" not in written, "nobody's paths"
    assert checked(old, "--baseline", base, "--update")[1].count("unchanged") == 1
    assert (base.read_bytes(), [path.name for path in tmp_path.glob("base.json*")]) == (written, ["base.json"])
    assert checked(old, "--baseline", base)[0] == 0

    new = run_of("new", [[("f", 20, 3), ("g", 10, 1)]], folder="/srv/bob", line=9)
    code, out, _ = checked(new, "--baseline", base, "--json")
    shown = json.loads(out)
    assert code == 1
    assert shown["verdict"] == (
        "peak_reserved is 70.00 MiB, 20.00 MiB (+40.0%) more than in the baseline (50.00 MiB); 1% more is allowed "
        "(and 2 more)."
    )
    grown = shown["traces"][0]["sites"]
    assert [(each["label"], each["baseline_line"], each["baseline_bytes"], each["bytes"]) for each in grown] == [
        ("train.py:9 f", 5, 40 * MIB, 60 * MIB)
    ]
    assert checked(new, "--baseline", base, "--tolerance", "45%")[0] == 0
    own = ("peak_reserved=20MiB", "peak_allocated=20MiB", "peak_requested=20MiB")
    assert checked(new, "--baseline", base, *(part for each in own for part in ("--tolerance", each)))[0] == 0
    code, out, _ = checked(new, "--baseline", base, "--update")
    assert code == 0
    assert "rank0: peak_reserved 50.00 MiB → 70.00 MiB (+40.0%)" in out
    code, out, _ = checked(old, "--baseline", base)
    assert (code, "less than in the baseline" in out) == (0, True)


def test_ranks_are_held_against_their_own_and_none_may_be_missing(checked, run_of, tmp_path):
    base = tmp_path / "base.json"
    ranks = [[("f", 20, 1)], [("f", 30, 1)]]
    assert checked(run_of("old", ranks), "--baseline", base, "--update")[0] == 0
    assert sorted(json.loads(base.read_text())["traces"]) == ["rank0", "rank1"]
    code, out, _ = checked(run_of("swapped", ranks[::-1]), "--baseline", base)
    assert code == 1
    assert "FAILED  rank0: peak_reserved is 30.00 MiB" in out
    code, out, _ = checked(run_of("fewer", ranks[:1]), "--baseline", base)
    assert code == 2
    assert "Traces in the baseline that were not given: rank1" in out
    code, out, _ = checked(run_of("more", [*ranks, ranks[0]]), "--baseline", base)
    assert (code, "the trace is not in the baseline" in out) == (2, True)


def test_a_file_that_cannot_be_read_is_told_and_does_not_stop_the_others(checked, run_of, tmp_path):
    run = run_of("run", [[("f", 20, 1)], [("f", 30, 1)]])
    (run / "rank0.pkl").write_bytes(b"broken")
    xml = tmp_path / "out.xml"
    code, out, _ = checked(run, "--budget", "peak=25MiB", "--junit", xml)
    assert code == 1
    assert "rank1: peak is 30.00 MiB" in out
    suite = ET.fromstring(xml.read_text(encoding="utf-8"))  # noqa: S314
    assert (suite.get("failures"), suite.get("errors"), suite.get("tests")) == ("1", "1", "2")
    code, _, err = checked(run, "--baseline", tmp_path / "b.json", "--update")
    assert (code, "not updated" in err, (tmp_path / "b.json").exists()) == (2, True, False)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"schema_version": 1}',
        b'{"schema_version": 9, "traces": {}}',
        b"[" * 100_000,
        b'{"schema_version": 1, "traces": {"rank0": {"facts": {}, "sites": [], "metrics": {"peak": "x"}}}}',
    ],
)
def test_what_is_no_baseline_is_refused(checked, train, tmp_path, content):
    (tmp_path / "base.json").write_bytes(content)
    code, _, err = checked(train, "--baseline", tmp_path / "base.json")
    assert code == 2
    assert "--update" in err


def test_a_baseline_that_says_nothing_does_not_pass(checked, train, tmp_path):
    empty = {"schema_version": 1, "memdiag_version": "0", "traces": {"x": {"facts": {}, "sites": None, "metrics": {}}}}
    (tmp_path / "base.json").write_text(json.dumps(empty))
    code, out, _ = checked(train, "--baseline", tmp_path / "base.json")
    assert (code, "has no metric to compare this trace with" in out) == (2, True)


def test_what_it_is_refused_for(checked, train, tmp_path):
    assert "there is nothing to check" in checked(train)[2]
    assert "--update needs a baseline" in checked(train, "--budget", "ooms=0", "--update")[2]
    assert "did you mean stranded?" in checked(train, "--budget", "strandet=1%")[2]
    copy = tmp_path / "copy.pkl"
    copy.write_bytes(train.read_bytes())
    assert "is one of the traces, and would be overwritten" in checked(copy, "--budget", "ooms=0", "--junit", copy)[2]
    assert copy.read_bytes() == train.read_bytes()


def test_annotations_go_to_stderr_and_stand_at_the_line_that_grew(checked, run_of, tmp_path, monkeypatch):
    run = run_of("run", [[("f", 20, 1)]])
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    _, out, err = checked(run, "--budget", "peak=1MiB", "--budget", "leak_per_step=1MiB", "--json")
    json.loads(out)
    error, warning = err.splitlines()
    assert error.startswith(
        "::error file=job/train.py,line=5,title=memdiag rank0::peak is 20.00 MiB: 19.00 MiB over the budget of 1.00 "
        "MiB%0A"
    )
    assert warning.startswith("::warning title=memdiag rank0::leak_per_step cannot be checked")
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "::" not in checked(run, "--budget", "peak=1MiB")[2]


def test_hostile_text_stays_text_in_every_form(checked, run_of, tmp_path):
    hostile = "\x1b[31m]]><b>&\"'\x00\u202e%0A::error::\n" + "y" * 300
    run = run_of("run", [[(hostile, 20, 1)]], folder="/x/\x07<i>")
    xml = tmp_path / "out.xml"
    code, out, err = checked(run, "--budget", "peak=1MiB", "--junit", xml, "--github")
    assert code == 1
    for text in (out, err, xml.read_text(encoding="utf-8")):
        assert not any(char in text for char in "\x1b\x00\x07\u202e")
    failure = ET.fromstring(xml.read_text(encoding="utf-8")).find(".//failure")  # noqa: S314
    assert r"]]><b>&" in failure.text
    assert len([line for line in err.splitlines() if line.startswith("::")]) == 1


def test_a_finding_that_a_file_can_never_show_is_not_taken_for_absent(checked, tmp_path):
    lifespans = tmp_path / "lifespans.csv"
    lifespans.write_text("id,lower,upper,size\n0,0,9,4096\n1,2,5,8192\n")
    code, out, err = checked(lifespans, "--budget", "MD201=0")
    assert code == 2
    assert "MD201 cannot be checked" in out + err


def test_it_speaks_chinese(train, capsys):
    with speaking("en"):  # restores the language that the command changes
        assert main(["--lang", "zh", "check", str(train), "--budget", "peak_reserved=1MiB"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("未通过")
    assert "比预算" in said
