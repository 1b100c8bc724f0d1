"""For any bad file, the command line prints a one-line error with one hint, and exits with status 2."""

from __future__ import annotations

import gzip
import os
import pickle
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.cli.main import main

PAGE = b"<!DOCTYPE html><html><body>"


class Call:
    """Creates a file if it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


CASES = {
    "a pickle that calls": lambda mark: pickle.dumps(Call(mark), 4),
    "a pickle that calls, protocol 0": lambda mark: pickle.dumps(Call(mark), 0),
    "a pickle that calls, zipped": lambda mark: gzip.compress(pickle.dumps(Call(mark), 4)),
    "a name alone": lambda _: b"cposix\nsystem\n.",
    "a persistent id alone": lambda _: b"Pmy-tensor\n.",
    "a torch checkpoint": lambda _: pickle.dumps({"state_dict": {"weight": [1.0, 2.0]}}, 2),
    "a number": lambda _: pickle.dumps(5),
    "itself": lambda _: b"\x80\x04]\x94h\x00a.",
    "cut": lambda _: pickle.dumps({"segments": [], "device_traces": [[]]}, 4)[:-5],
    "cut gzip": lambda _: gzip.compress(pickle.dumps({"segments": []}))[:-6],
    "changed gzip": lambda _: gzip.compress(bytes(1000)).replace(b"\x00", b"\x01", 3),
    "memo bomb": lambda _: b"\x80\x04Nr\x00\xe1\xf5\x05.",
    "no bytes": lambda _: b"",
    "an empty gzip": lambda _: gzip.compress(b""),
    "random bytes": lambda _: bytes(range(128, 256)) * 8,
    "text": lambda _: b"RuntimeError: out of memory\n",
    "json of something else": lambda _: b'{"a": 1}',
    "json with a brace missing": lambda _: b'{"traceEvents": [{"ph": "X"}',
    "deep json": lambda _: b"[" * 100_000,
    "a csv of something else": lambda _: b"name,age\nAda,36\n",
    "a picture": lambda _: b"\x89PNG\r\n\x1a\n" + bytes(64),
    "a page without data": lambda _: PAGE + b"</body></html>",
    "a page with a picture": lambda _: PAGE + b'<img src="data:image/png;base64,AAAA"></body></html>',
    "a page with a call": lambda mark: (
        PAGE + b'<script>x = "' + _base64(pickle.dumps(Call(mark), 4)) + b'"</script></body></html>'
    ),
    "a database of something else": lambda _: b"SQLite format 3\x00" + bytes(84),
    "an archive of something else": lambda _: b"PK\x05\x06" + bytes(18),
}


def test_a_log_is_sent_to_the_command_that_reads_logs(tmp_path, capsys):
    for name, content in (("train.log", b"step 1\nCUDA out of memory.\n"), ("a b.txt", "显存不足\n".encode() * 30_000)):
        file = tmp_path / name
        file.write_bytes(content)
        assert main(["analyze", str(file)]) == 2
        command = capsys.readouterr().err.split("memory, run ")[1].split(";")[0]
        assert main(shlex.split(command)[1:]) == 0
        assert capsys.readouterr().err == ""
    file.write_bytes(bytes(range(128, 256)))
    assert main(["analyze", str(file)]) == 2
    assert "memdiag oom" not in capsys.readouterr().err


@pytest.mark.parametrize("left", [0.2, 0.5, 0.9, 0.999])
def test_a_cut_pickle_says_where_it_ends(tmp_path, capsys, left):
    whole = pickle.dumps({"segments": [{"frames": ["x" * 70_000, "y" * 70_000]}], "device_traces": [[]]}, 4)
    file = tmp_path / "trace.pkl"
    file.write_bytes(whole[: int(len(whole) * left)])
    assert main(["analyze", str(file)]) == 2
    assert f"it ends after {file.stat().st_size:,} bytes" in capsys.readouterr().err


def _base64(data):
    import base64

    return base64.b64encode(data)


def check(code, out, err):
    lines = [line for line in err.splitlines() if not line.startswith("compiling the code")]
    assert code == 2
    assert out == ""
    assert len(lines) == 2, err
    assert lines[0].startswith("error: ")
    assert len(lines[0]) > len("error: ") + 10
    assert lines[1].startswith("hint: ")
    assert "internal" not in lines[0]
    assert "Traceback" not in err


@pytest.mark.parametrize("name", list(CASES))
def test_files(tmp_path, capsys, name):
    mark, file = tmp_path / "made by the file", tmp_path / "trace"
    file.write_bytes(CASES[name](mark))
    code = main(["analyze", str(file)])
    check(code, *capsys.readouterr())
    assert not mark.exists()


@pytest.mark.parametrize(
    "place",
    ["/dev/null", "/dev/zero", "/dev/urandom", "/", "/nowhere/at/all", "/proc/self/mem", "x" * 5000, "/dev/full"],
)
def test_places(capsys, place):
    if place.startswith(("/dev", "/proc")) and not Path(place).exists():
        pytest.skip("there is no such device here")
    check(main(["analyze", place]), *capsys.readouterr())


def test_no_permission_even_as_root(tmp_path):
    # Root can read every file, so read as user nobody.
    file = tmp_path / "trace"
    file.write_bytes(pickle.dumps({"segments": []}))
    file.chmod(0)
    program = "import sys\nfrom memdiag.cli.main import main\nsys.exit(main(['analyze', sys.argv[1]]))"
    if os.geteuid() == 0:
        # Load all modules first, because user nobody cannot read root's Python.
        program = """
import contextlib, io, os, sys
from pathlib import Path
from memdiag.cli.main import main
file = Path(sys.argv[1])
with contextlib.redirect_stderr(io.StringIO()):
    other = file.with_name("other")
    other.write_bytes(b"no trace at all")
    main(["analyze", str(other)])
os.chdir(file.parent)
os.setgid(65534)
os.setuid(65534)
sys.exit(main(["analyze", file.name]))
"""
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=False)
    check(done.returncode, done.stdout, done.stderr)
    assert "permission" in done.stderr.lower()


@pytest.mark.parametrize(
    "text",
    [
        '{"log": "step 1\\n", "stream": "stderr"}\n{"log": "step 2\\n"}\n',
        '{"level": "error", "message": "failed"}\n',
        '[{"message": "failed"}]',
    ],
)
def test_a_log_in_json_may_have_a_message(tmp_path, capsys, text):
    path = tmp_path / "train.json"
    path.write_text(text, encoding="utf-8")
    assert main(["analyze", str(path)]) == 2
    assert f"memdiag oom {path}" in capsys.readouterr().err
    path.write_text('{"traceEvents": []}', encoding="utf-8")
    assert main(["analyze", str(path)]) == 2
    assert "memdiag oom" not in capsys.readouterr().err


def test_standard_input_is_no_trace(capsys):
    assert main(["analyze", "-"]) == 2
    assert "standard input" in capsys.readouterr().err
