"""``memdiag fleet`` handles folders, unreadable files, stored results, interruptions, output forms and exit status."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from memdiag.cli.main import main
from memdiag.fleet.work import work


@pytest.fixture
def run_of(goldens, tmp_path):
    """Returns a function that creates a run directory with one golden recording for each rank."""

    def make(*names):
        folder = tmp_path / "memdiag-run"
        folder.mkdir()
        for rank, name in enumerate(names):
            if name == "broken":
                (folder / f"rank{rank}.pkl").write_bytes(b"nonsense")
            else:
                shutil.copy(goldens / name / "snapshot.pickle", folder / f"rank{rank}.pkl")
        return folder

    return make


class Inline:
    """An engine that reads files in this process; tests/fleet/test_local.py covers worker processes."""

    def __init__(self, **_):
        self.workers = 1

    def map(self, tasks):
        return ((number, work(task)) for number, task in enumerate(tasks))

    def close(self):
        pass


@pytest.fixture
def fleet(capsys, monkeypatch):
    monkeypatch.setattr("memdiag.fleet.local.Local", Inline)

    def call(*arguments, code=0):
        assert main(["fleet", "--workers", "1", *map(str, arguments)]) == code
        return capsys.readouterr()

    return call


def test_a_run_with_a_broken_rank(fleet, run_of):
    folder = run_of("cuda-2.13.0-recorded", "broken", "cuda-2.13.0-recorded")
    said = fleet(folder, "--json", "--fail-on", "unreadable", code=1)
    assert fleet(folder, "--json", "--fail-on", "broken", code=1).out == said.out  # its older name
    found = json.loads(said.out)
    assert (found["schema_version"], found["num_ranks"], found["num_out_of_memory"]) == (2, 2, 0)
    assert [row["rank"] for row in found["ranks"]] == [0, 2]
    assert [(each["rank"], "rank1.pkl" in each["message"]) for each in found["unreadable"]] == [(1, True)]
    assert found["groups"][0]["ranks"] == [0, 2]
    assert found["heatmap"]["rows"][0]["rank"] == 0
    assert "--fail-on: unreadable" in said.err


def test_what_is_kept_is_not_read_again(fleet, run_of, tmp_path, monkeypatch):
    folder, out = run_of("cuda-2.13.0-recorded", "cuda-2.13.0-oom"), tmp_path / "out"
    first = fleet(folder, "--json", "-o", out, "--fail-on", "oom", code=1)
    assert {path.name for path in out.iterdir()} == {"ranks", "fleet.json", "fleet.md", "fleet.html"}
    assert len(list((out / "ranks").iterdir())) == 2
    assert json.loads((out / "fleet.json").read_text()) == json.loads(first.out)
    assert "OUT OF MEMORY" in (out / "fleet.md").read_text()
    assert "OUT OF MEMORY" in (out / "fleet.html").read_text()
    monkeypatch.setattr(Inline, "map", lambda *_: pytest.fail("a file was read again"))
    assert fleet(folder, "--json", "-o", out).out == first.out


def test_the_moment_of_every_rank_can_be_chosen(fleet, run_of, tmp_path):
    folder, out = run_of("cuda-2.13.0-recorded", "cuda-2.13.0-oom"), tmp_path / "out"

    def held(*options):
        found = json.loads(fleet(folder, "--json", "-o", out, *options).out)
        return [sum(row["by_category"].values()) for row in found["ranks"]]

    chosen = held("--at", "end")
    assert chosen[0] < held()[0]
    assert chosen == held("--at", "end")  # stored results of another moment are not used
    broken = json.loads(fleet(folder, "--json", "--at", "oom").out)["unreadable"]
    assert [row["rank"] for row in broken] == [0]  # the file of rank 0 records no failure
    assert "--at" in fleet(folder, "--at", "never", code=2).err


def test_a_page_for_people(fleet, run_of, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    picture = tmp_path / "heat.svg"
    said = fleet(run_of("cuda-2.13.0-recorded", "cuda-2.13.0-oom", "broken"), "--heatmap", picture)
    for words in (
        "OUT OF MEMORY",
        "Reserved peaks of ranks",
        "Headroom",
        "Findings of all ranks",
        "Files that could not be read",
        "memdiag analyze",
    ):
        assert words in said.out
    assert max(map(len, said.out.splitlines())) <= 120
    assert picture.read_text().startswith("<?xml")


def test_one_setting_for_all(fleet, run_of):
    found = json.loads(
        fleet(run_of("cuda-2.13.0-oom", "cuda-2.13.0-train"), "--json", "--tune", "--budget-seconds", "30").out
    )["tuned"]
    assert set(found["searched_on_ranks"]) == {0, 1}
    assert found["search"]["recommended"]["command"].startswith("export PYTORCH_CUDA_ALLOC_CONF=")
    assert (
        found["checked"]["num_ranks"],
        found["checked"]["failing_ranks_before"],
        found["checked"]["failing_ranks_after"],
    ) == (
        2,
        [0],
        [],
    )


def test_no_setting_is_for_two_kinds_of_devices(fleet, run_of):
    found = json.loads(fleet(run_of("cuda-2.13.0-train", "npu-2.13.0-train"), "--json", "--tune").out)
    assert found["tuned"] is None
    assert any("no settings in common" in note for note in found["notes"])


def test_nothing_could_be_read(fleet, run_of):
    said = fleet(run_of("broken", "broken"), code=2)
    assert "none of the files could be read" in said.err
    assert "NOTHING READ" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "threads"], "--engine threads: neither local nor ray"),
        (["--address", "x:1"], "add --engine ray"),
        (["--heatmap", "x.txt"], "cannot draw a picture"),
        (["--capacity", "0"], "no device has that much memory"),
        (["--fail-on", "sometimes"], "neither oom, outliers, unreadable, warning, critical nor a finding code"),
    ],
)
def test_what_is_refused(fleet, tmp_path, arguments, words):
    assert words in fleet(tmp_path, *arguments, code=2).err


def test_left_out_it_is_the_newest_run_here(fleet, run_of, monkeypatch):
    monkeypatch.chdir(run_of("cuda-2.13.0-recorded", "cuda-2.13.0-recorded").parent)
    assert json.loads(fleet("--json").out)["num_ranks"] == 2


def test_nothing_is_there(fleet, tmp_path):
    assert "no trace files found there" in fleet(tmp_path, code=2).err


def test_names_from_files_do_nothing(fleet, goldens, tmp_path):
    shutil.copy(goldens / "cuda-2.13.0-recorded" / "snapshot.pickle", tmp_path / "a\x1b[31m<script>|`.pkl")
    (tmp_path / "b\x1b]0;x\x07.pkl").write_bytes(b"nonsense")
    for form in ("--json", "--md", "--top=3"):
        out = fleet(tmp_path, form).out
        assert "\x1b" not in out
        assert "\x07" not in out


def test_redacted(goldens, tmp_path):
    """With ``--redact``, outputs contain no user name; a separate process is needed because the option affects all of
    it.
    """
    folder = tmp_path / "home" / "jdoe-secret"
    folder.mkdir(parents=True)
    shutil.copy(goldens / "cuda-2.13.0-recorded" / "snapshot.pickle", folder / "rank0.pkl")
    (folder / "rank1.pkl").write_bytes(b"nonsense")
    command = [sys.executable, "-m", "memdiag", "--redact", "fleet", str(folder), "-o", "out", "--workers", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    for text in (done.stdout, done.stderr, *(str(path.relative_to(tmp_path)) + path.read_text() for path in written)):
        assert "jdoe-secret" not in text
    assert len(written) == 4


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent in another way there")
def test_ctrl_c_keeps_what_is_done(run_of, tmp_path):
    """After Ctrl-C, the results of files that were read are stored, and the message names their number.

    A replaced worker makes the second file take very long, so that the interruption comes while it is read.
    """
    folder = run_of("cuda-2.13.0-recorded", "cuda-2.13.0-recorded")
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys\n"
        "from memdiag.fleet import local\n"
        "local._BOOT = local._BOOT.replace('main()', 'from memdiag.fleet import work; import time; usual = work.work; "
        "'\n"
        '    \'work.work = lambda task: time.sleep(600) if "rank1" in task["name"] else usual(task); main()\')\n'
        "from memdiag.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    out = tmp_path / "out"
    child = subprocess.Popen(
        [sys.executable, str(slow), "fleet", str(folder), "-o", str(out), "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for _ in range(3000):
        if list(out.glob("ranks/rank0*.json")) or child.poll() is not None:
            break
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=300)
    assert child.returncode == 130, said
    assert b"interrupted: 1 of 2 files were read; run the same command again to continue" in said
    assert len(list(out.glob("ranks/*.json"))) == 1
