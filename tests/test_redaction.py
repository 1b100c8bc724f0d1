"""With ``--redact``, no output contains planted secrets, and the facts that explain the memory remain."""

from __future__ import annotations

import base64
import json
import pickle
import re
import shutil
import zlib
from pathlib import Path

import pytest

from memdiag import redaction
from memdiag.cli.main import main
from memdiag.redaction import redact_path, redact_text

ROOT = Path(__file__).parents[1]
GOLDENS = ROOT / "tests" / "goldens"
SECRETS = ("alicewong", "topsecretproject", "hunter2", "s3cr3t-bucket", "gpu-node-17", "corp.example")
HOME = "/home/alicewong/topsecretproject"


@pytest.fixture(autouse=True)
def off_again(monkeypatch):
    """Restores the environment variable that turns redaction on, and the stored user names."""
    monkeypatch.setenv(redaction.VARIABLE, "")
    monkeypatch.setattr(redaction, "_users", set())
    monkeypatch.setattr(redaction, "_lengths", {})
    monkeypatch.setattr(redaction, "_given", [None])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("File /home/bob/x/train.py, line 3", "File train.py, line 3"),
        ("~/work/train.py", "train.py"),
        ("/data/run", "…"),
        (
            "in /home/bob/v/lib/python3.11/site-packages/torch/nn/modules/linear.py:5",
            "in site-packages/torch/nn/modules/linear.py:5",
        ),
        ("/usr/lib/python3.12/threading.py", "/lib/python3.12/threading.py"),
        (r"C:\Users\bob\train.py", "train.py"),
        ('{"path": "C:\\\\Users\\\\bob\\\\x.pkl"}', '{"path": "x.pkl"}'),
        ("from ../../home/bob/x.pkl and ./secret/y.pkl", "from x.pkl and y.pkl"),
        ('{"a": "read\\n/srv/secret/run\\t/srv/secret/x.pkl"}', '{"a": "read\\n…\\tx.pkl"}'),
        ("s3://bucket/key/rank0.pkl", "s3://…/rank0.pkl"),
        ("file:///home/bob/x.pkl", "file://…/x.pkl"),
        ("see https://pytorch.org/docs/stable/notes/cuda.html", "see https://pytorch.org/docs/stable/notes/cuda.html"),
        ("https://bob:pw@host/x", "https://host/x"),
        ("mail bob@corp.example", "mail [user]"),
        ("PATH=/usr/bin:/home/bob/bin", "PATH=…:…"),
        ("bytes/step, CUDA/NPU/CPU, 3/4 of it, and/or", "bytes/step, CUDA/NPU/CPU, 3/4 of it, and/or"),
        ("layers.3.mlp (gelu) 1.5 GiB/s", "layers.3.mlp (gelu) 1.5 GiB/s"),
    ],
)
def test_text(text, shown):
    assert redact_text(text) == shown


def test_a_user_is_known_once_a_home_was_seen():
    assert redact_text("/home/carolx/a.py ran; carolx's run, xcarolx") == "a.py ran; [user]'s run, xcarolx"
    redact_text("/home/train/a.py")
    assert redact_text("train.py:3 train") == "train.py:3 train"  # an ordinary word of reports does not count as a name


def test_as_many_homes_as_a_file_may_name_take_no_long_time():
    """Many home directories in one file are redacted quickly and completely, the longest name first.

    Compiling a pattern of all names for each new name would take hours.
    """
    for number in range(20_000):
        redact_text(f"/home/person{number}/x.py")
    assert redact_text("person19999, person19999.b person20000 -person7-") == "[user], [user].b person20000 -[user]-"
    redaction.note_users(["person7-b", "O'Neil Smith"])
    assert redact_text("person7-b person7-bc O'Neil Smith") == "[user] [user]-bc [user]"


@pytest.mark.parametrize(
    "long", ["a" * 300_000, "a+" * 150_000, "/" * 300_000, "/a" * 150_000, "a@" * 150_000, "C:\\a" * 75_000]
)
def test_a_long_word_takes_no_long_time(long):
    assert redact_text(long) is not None  # each of these would take hours if text were searched twice


def test_a_path_keeps_its_library():
    assert redact_path("/var/torchinductor_dave/ab/cab.py") == "/torchinductor_/cab.py"
    assert redact_path("/x/site-packages/y/site-packages/torch/a.py") == "site-packages/torch/a.py"


def planted(path):
    """A recording with secrets in every text field."""
    content = pickle.loads((GOLDENS / "cuda-2.13.0-recorded" / "snapshot.pickle").read_bytes())
    seen = set()

    def change(value):
        if isinstance(value, dict):
            if id(value) not in seen:
                seen.add(id(value))
                if isinstance(value.get("filename"), str) and "site-packages" not in value["filename"]:
                    value["filename"] = f"{HOME}/{value['filename'].rpartition('/')[2]}"
                for item in value.values():
                    change(item)
        elif isinstance(value, list) and id(value) not in seen:
            seen.add(id(value))
            for item in value:
                change(item)

    change(content)
    settings = content.setdefault("allocator_settings", {})
    settings["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:512,hunter2:1"
    settings["last_allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "hunter2:1"}
    own = content["memdiag"]
    own["argv"] = ["python", f"{HOME}/train.py", "--password", "hunter2"]
    own["cwd"], own["host"] = HOME, "gpu-node-17"
    own["environment"] = {"PYTORCH_CUDA_ALLOC_CONF": "hunter2:1", "WANDB": "hunter2", "HOME": "/home/alicewong"}
    content["external_annotations"] = [
        {
            "stage": stage,
            "name": f"load s3://s3cr3t-bucket/x of alicewong from {HOME}",
            "device": 0,
            "time_us": time,
            "id": 1,
        }
        for stage, time in (("START", 1), ("END", 2))
    ]
    path.write_bytes(pickle.dumps(content, protocol=4))
    return path


@pytest.fixture
def trace(tmp_path, monkeypatch):
    folder = tmp_path / "alicewong" / "topsecretproject"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return planted(folder / "run.pkl")


def written(arguments, capsys, folder):
    """Returns all text that a command printed or wrote, including decompressed data of pages."""
    shutil.rmtree(folder)
    folder.mkdir()
    status = main(arguments)
    shown = capsys.readouterr()
    text = shown.out + shown.err
    for file in (path for path in sorted(folder.rglob("*")) if path.is_file()):
        data = file.read_bytes()
        text += data.decode("latin-1")
        for packed in re.findall(rb'id="memdiag-data">([^<]+)<', data):
            text += zlib.decompress(base64.b64decode(packed)).decode()
    assert status in {0, 1}, shown.err
    return text


COMMANDS = {
    "analyze": ["analyze", "FILE"],
    "analyze json": ["analyze", "FILE", "--json"],
    "analyze md": ["analyze", "FILE", "-o", "OUT/report.md"],
    "analyze html": ["analyze", "FILE", "--html", "OUT/report.html"],
    "simulate": ["simulate", "FILE", "--policy", "expandable", "--out", "OUT/trace.pkl"],
    "simulate json": ["simulate", "FILE", "--json", "--policy", "caching,lifecycle"],
    "compare": ["compare", "FILE", "FILE", "--json"],
    "check": [
        "check",
        "FILE",
        "--budget",
        "peak_reserved=1KiB",
        "--baseline",
        "OUT/base.json",
        "--update",
        "--junit",
        "OUT/junit.xml",
    ],
    "check github": ["check", "FILE", "--budget", "peak_reserved=1KiB", "--github"],
    "fleet": ["fleet", "FILE", "--json", "-o", "OUT/fleet"],
    "export perfetto": ["export", "FILE", "--format", "perfetto", "-o", "OUT/run.json"],
    "export speedscope": ["export", "FILE", "-o", "OUT/run.speedscope.json"],
    "export csv": ["export", "FILE", "--format", "csv", "-o", "OUT/tables"],
    "export snapshot": ["export", "FILE", "--format", "snapshot", "-o", "OUT/other.pkl"],
    "plot": ["plot", "FILE", "-o", "OUT/run.svg"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_planted_comes_out(name, trace, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    arguments = [str(trace) if each == "FILE" else each.replace("OUT", str(out)) for each in COMMANDS[name]]
    plain = written(arguments, capsys, out)
    assert name == "plot" or any(secret in plain for secret in SECRETS), "nothing was planted where this command looks"
    text = written([*arguments, "--redact"], capsys, out)
    assert [secret for secret in SECRETS if secret in text] == []
    if name == "analyze":
        assert "train" in text


@pytest.mark.parametrize(
    "given", ["topsecretproject/runs/rank0.pkl", "topsecretproject/runs", "topsecretproject/runs/rank*.pkl"]
)
def test_folders_of_a_relative_path_go_as_well(given, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topsecretproject" / "runs").mkdir(parents=True)
    shutil.copy(GOLDENS / "cuda-2.13.0-oom" / "snapshot.pickle", tmp_path / "topsecretproject" / "runs" / "rank0.pkl")
    arguments = ["fleet", given, "--json", "--heatmap", "topsecretproject/heat.svg"]
    assert main(arguments) in {0, 2}
    assert "topsecretproject" in "".join(capsys.readouterr())
    main(["--redact", *arguments])
    shown = capsys.readouterr()
    assert json.loads(shown.out)["ranks"][0]["file"] == "rank0.pkl"
    assert "topsecretproject" not in shown.out + shown.err


def test_a_recording_can_be_redacted_where_it_lies(trace):
    from memdiag.sources import load
    from memdiag.sources.redacted_file import redact_manifest, redact_run, redact_words

    before = load(trace)
    (trace.parent / "rank3.pkl").write_bytes(trace.read_bytes())
    (trace.parent / "rank3.json").write_text(json.dumps({"argv": ["hunter2"], "trace": str(trace), "steps": 3}))
    redact_run(str(trace.parent))
    redact_words(str(trace.parent))
    data = (trace.parent / "rank3.pkl").read_bytes() + (trace.parent / "rank3.json").read_bytes()
    assert [secret for secret in SECRETS if secret.encode() in data] == []
    assert json.loads((trace.parent / "rank3.json").read_text()) == {"trace": "run.pkl", "steps": 3}
    after = load(trace.parent / "rank3.pkl")
    assert (after.devices[0].usage.reserved == before.devices[0].usage.reserved).all()
    assert (after.devices[0].tensors.name == before.devices[0].tensors.name).all()
    manifest = {
        "argv": ["hunter2"],
        "cwd": HOME,
        "host": "gpu-node-17",
        "environment": {"PYTORCH_CUDA_ALLOC_CONF": "hunter2:1"},
        "seconds": 1,
    }
    assert redact_manifest(manifest) == {"environment": {"PYTORCH_CUDA_ALLOC_CONF": ""}, "seconds": 1}


def test_a_hostile_recording_is_refused_and_not_run(tmp_path):
    from memdiag.errors import RefusedFile
    from memdiag.sources.redacted_file import redact_snapshot

    path = tmp_path / "rank0.pkl"
    path.write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(RefusedFile, match=r"os\.system"):
        redact_snapshot(path)


def test_one_file_that_cannot_be_redacted_leaves_no_other_as_it_was(trace):
    from memdiag.errors import RefusedFile
    from memdiag.sources.redacted_file import redact_run

    (trace.parent / "rank1.pkl").write_bytes(trace.read_bytes())
    (trace.parent / "rank0.pkl").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(RefusedFile, match="rank0"):
        redact_run(str(trace.parent))
    data = (trace.parent / "rank1.pkl").read_bytes()
    assert [secret for secret in SECRETS if secret.encode() in data] == []


def test_what_a_program_printed_is_redacted_line_by_line(tmp_path):
    from memdiag.sources.redacted_file import redact_lines

    output = tmp_path / "output.txt"
    output.write_bytes(f"loading {HOME}/train.py\nof alicewong: 3 \xff\n".encode("latin-1"))
    redact_lines(output)
    assert output.read_text() == "loading train.py\nof [user]: 3 \ufffd\n"
    assert [path.name for path in tmp_path.iterdir()] == ["output.txt"]


def test_a_message_is_redacted_as_well(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "train.log"
    log.write_text(
        f'  File "{HOME}/train.py", line 3, in <module>\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 "
        "GiB of which "
        "1.00 GiB is free. Process 77 has 78.00 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by "
        "PyTorch, and "
        "7.00 GiB is reserved by PyTorch but unallocated.\n"
    )
    assert main(["oom", str(log), "--json", "--redact"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text)["messages"][0]["fields"]["requested_bytes"] == 2 << 30
    assert [secret for secret in SECRETS if secret in text] == []


def test_the_programs_own_arguments_are_not_ours():
    from memdiag.cli.main import _common

    assert _common(["record", "--", "x", "--redact"]) == (False, "", ["record", "--", "x", "--redact"])
    assert _common(["record", "python", "x", "--redact"]) == (False, "", ["record", "python", "x", "--redact"])
    assert _common(["--redact", "record", "x"]) == (True, "", ["record", "x"])
    assert _common(["analyze", "x", "--redact", "--json"]) == (True, "", ["analyze", "x", "--json"])
    assert _common(["analyze", "--lang", "zh", "x"]) == (False, "zh", ["analyze", "x"])
    assert _common(["record", "x", "--lang=zh"]) == (False, "", ["record", "x", "--lang=zh"])
