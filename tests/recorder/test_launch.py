"""A recorded program has the same streams, signals and exit status as without memdiag."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE_TORCH = Path(__file__).parent / "fake_torch"
MEMDIAG = [sys.executable, "-c", "import sys; from memdiag.cli.main import main; sys.exit(main())"]
PYTHON = sys.executable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and process groups are those of POSIX")


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEMDIAG", "PYTHONPATH"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "", **more}


def record(folder, *command, options=("-q",), **more):
    """Runs ``memdiag record`` in a folder; returns the completed process."""
    given = {"capture_output": True, "text": True, "timeout": 120, "env": environment(), **more}
    return subprocess.run([*MEMDIAG, "record", *options, "--", *command], cwd=folder, check=False, **given)


def begin(folder, *command, options=("-q",), **more):
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment(), **more}
    return subprocess.Popen([*MEMDIAG, "record", *options, "--", *command], cwd=folder, **given)


def manifest(folder):
    paths = list(Path(folder).glob("memdiag-*/manifest.json"))
    assert len(paths) == 1
    return json.loads(paths[0].read_text())


@pytest.mark.parametrize("code", [0, 1, 2, 3, 77, 255])
def test_the_exit_status_is_that_of_the_program(tmp_path, code):
    assert record(tmp_path, "sh", "-c", f"exit {code}").returncode == code
    assert manifest(tmp_path)["exit_status"] == code


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGINT", "SIGABRT", "SIGPIPE"])
def test_death_by_a_signal_is_passed_on(tmp_path, name):
    number = getattr(signal, name)
    assert record(tmp_path, "sh", "-c", f"kill -{name[3:]} $$").returncode == -number
    assert manifest(tmp_path)["signal"] == name


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("import sys; sys.exit('words')", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("1 / 0", 1),
        ("import os; os._exit(5)", 5),
        ("import sys; sys.exit(None)", 0),
    ],
)
def test_python_programs_end_as_without_memdiag(tmp_path, program, code):
    plain = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=False, env=environment())
    done = record(tmp_path, PYTHON, "-c", program)
    assert done.returncode == plain.returncode == code
    assert done.stderr == plain.stderr


def test_streams_arguments_and_directory_are_unchanged(tmp_path):
    program = "import os, sys; print(sys.argv, os.getcwd(), sys.stdin.read()); print('e', file=sys.stderr)"
    command = [PYTHON, "-c", program, "-q", "--", "--help", "", "a b", "ü"]
    plain = subprocess.run(
        command, cwd=tmp_path, input="typed", capture_output=True, text=True, check=False, env=environment()
    )
    done = record(tmp_path, *command, input="typed")
    assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)


def test_options_after_the_command_are_its_own(tmp_path):
    command = [*MEMDIAG, "record", "-q", PYTHON, "-c", "import sys; print(sys.argv[1:])", "--every", "-o", "x"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment())
    assert done.stdout == "['--every', '-o', 'x']\n"


def test_file_descriptors_are_passed_on(tmp_path):
    read, write = os.pipe()
    done = record(tmp_path, PYTHON, "-c", f"import os; os.write({write}, b'through\\n')", pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as file:
        assert file.read() == "through\n"
    assert done.returncode == 0


def test_a_closed_stderr_causes_no_error(tmp_path):
    command = " ".join(f"'{word}'" for word in [*MEMDIAG, "record", "--", PYTHON, "-c", "print(1)"])
    done = subprocess.run(
        ["/bin/sh", "-c", command + " 2>&-"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_a_missing_command_is_an_error(tmp_path):
    done = record(tmp_path, "no-such-command", "x")
    assert done.returncode == 127
    assert done.stderr.startswith("error: no-such-command: command not found\nhint: ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_python_script_without_python_is_an_error_with_a_hint(tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    done = record(tmp_path, "./train.py")
    assert done.returncode == 126
    done = record(tmp_path, "train.py")
    assert done.returncode == 127
    assert "memdiag record -- python train.py" in done.stderr


def test_a_script_without_an_interpreter_line_runs_in_the_shell(tmp_path):
    script = tmp_path / "go"
    script.write_text("echo $1; exit 3\n")
    script.chmod(0o755)
    done = record(tmp_path, "./go", "said")
    assert (done.returncode, done.stdout) == (3, "said\n")


def test_a_call_without_a_command_is_an_error(tmp_path):
    done = record(tmp_path)
    assert done.returncode == 2
    assert "memdiag record [options] -- python train.py" in done.stderr


WAITS = """
import signal, sys, time
names = sys.argv[1:]
got = []
for name in names:
    signal.signal(getattr(signal, name), lambda number, frame: got.append(signal.Signals(number).name))
print("ready", flush=True)
end = time.monotonic() + 60
while len(got) < len(names) and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.2)
print(" ".join(got), flush=True)
"""


@pytest.mark.parametrize(
    "name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT"]
)
def test_signals_that_reach_only_memdiag_are_passed_on(tmp_path, name):
    process = begin(tmp_path, PYTHON, "-c", WAITS, name)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=100)
    assert (out, err, process.returncode) == (name + "\n", "", 0)


def test_signals_that_the_program_does_not_handle_end_both(tmp_path):
    process = begin(tmp_path, PYTHON, "-c", "import time; print('ready', flush=True); time.sleep(60)")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGTERM


def test_a_signal_ignored_by_nohup_stays_ignored(tmp_path):
    program = "import time; print(1, flush=True); time.sleep(1); print(2)"
    ignoring = "trap '' HUP; exec \"$@\""
    process = subprocess.Popen(
        ["/bin/sh", "-c", ignoring, "sh", *MEMDIAG, "record", "-q", "--", PYTHON, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout.readline() == "1\n"
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=100)[0] == "2\n"
    assert process.returncode == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells children of the death of their parent")
def test_killing_memdiag_kills_the_program(tmp_path):
    process = begin(tmp_path, PYTHON, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=100)
    for _ in range(500):
        if not Path(f"/proc/{pid}").exists() or ") Z" in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the program goes on")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not say where a signal is from")
def test_a_signal_from_the_terminal_arrives_once(tmp_path):
    """The terminal sends Ctrl-C to the whole process group, so memdiag must not send it a second time."""
    main, side = pty.openpty()
    program = WAITS.replace("time.sleep(0.2)", "time.sleep(0.5)")
    command = [*MEMDIAG, "record", "-q", "--", PYTHON, "-c", program, "SIGINT"]
    code = (
        f"import os, sys, fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv({command[0]!r}, {command!r})"
    )
    process = subprocess.Popen(
        [PYTHON, "-c", code],
        cwd=tmp_path,
        stdin=side,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    os.write(main, b"\x03")
    out, err = process.communicate(timeout=100)
    os.close(side)
    os.close(main)
    assert (out, err, process.returncode) == ("SIGINT\n", "", 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_stopping_the_program_stops_the_job(tmp_path):
    """After Ctrl-Z, memdiag stops with the program and continues with it, since the shell waits for memdiag."""
    process = begin(
        tmp_path,
        PYTHON,
        "-c",
        "import os, signal; os.kill(os.getpid(), signal.SIGTSTP); print('on')",
        start_new_session=True,
    )
    # In an orphaned process group SIGTSTP has no effect, so the program simply ends.
    changed, status = 0, 0
    for _ in range(3000):
        changed, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
        if changed:
            break
        time.sleep(0.01)
    if os.WIFSTOPPED(status):
        os.killpg(process.pid, signal.SIGCONT)
        assert process.stdout.read() == "on\n"
        assert process.wait(timeout=100) == 0
    else:
        assert os.waitstatus_to_exitcode(status) == 0
        process.returncode = 0
    process.stdout.close()
    process.stderr.close()
