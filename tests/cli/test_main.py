"""The command line imports only needed modules, and has the documented exit status and errors."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys

import pytest

from memdiag.cli import analyze as command
from memdiag.cli.main import main
from memdiag.errors import MemdiagError, RefusedFile
from memdiag.text import language, set_language

HEAVY = {"numpy", "pandas", "numba", "llvmlite", "torch", "memdiag.trace", "memdiag.sources", "memdiag.analyzers"}


def loaded(*arguments):
    """Returns the modules loaded at the end of a ``memdiag`` run in a separate process."""
    program = (
        f"import sys; from memdiag.cli.main import main; code = main({list(arguments)!r})\n"
        "print('\\0'.join(['', *sys.modules])); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.rstrip().split("\0")[1:])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["analyze", "--help"]])
def test_nothing_heavy_is_loaded_for_help(arguments):
    modules = loaded(*arguments)
    assert not HEAVY & modules
    ours = {name for name in modules if name.startswith("memdiag")}
    # The help lists plot kinds, policies and formats, which are names in registries.
    light = {"memdiag", "memdiag.cli", "memdiag.errors", "memdiag.registry", "memdiag.text", "memdiag.version"}
    light |= {"memdiag.allocator", "memdiag.allocator.policies", "memdiag.allocator.policies.base"}
    light |= {"memdiag.views", "memdiag.views.plots"}
    assert {name for name in ours if not name.startswith("memdiag.cli.")} <= light


def test_help_loads_no_more_than_typer_does():
    program = (
        "import sys, typer\napp = typer.Typer()\n@app.callback()\ndef top(): 'x'\n@app.command()\ndef a(): 'x'\n"
        "try: app(['--help'])\nexcept SystemExit: pass\nprint('\\0'.join(['', *sys.modules]))"
    )
    bare = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    theirs = set(bare.stdout.rstrip().split("\0")[1:])
    assert {name for name in loaded("--help") - theirs if not name.startswith("memdiag")} == set()


def test_importing_the_package_loads_nothing():
    program = (
        "import sys; import memdiag; print(*sorted(name for name in sys.modules if name.startswith('memdiag')), "
        "'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["memdiag", "False"]


def test_help(capsys):
    assert main(["--help"]) == 0
    assert "analyze" in capsys.readouterr().out


def test_version(capsys):
    from memdiag import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"memdiag {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["analyze", "--bogus"], ["analyze", "x", "--top", "0"], ["analyze", "x", "--device", "y"]]
)
def test_usage_errors_end_with_2(arguments, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Error" in shown.err


@pytest.fixture
def fails(monkeypatch):
    """Makes the analysis raise."""

    def with_error(error):
        def report(*_, **__):
            raise error

        monkeypatch.setattr(command, "_report", report)

    return with_error


def test_an_error_is_two_lines(fails, capsys):
    fails(RefusedFile("x.pkl is not a\x1b[31m trace", "record\nagain"))
    assert main(["analyze", "x.pkl"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: x.pkl is not a\\x1b[31m trace\nhint: record\\nagain\n"


def test_an_error_has_its_own_exit_code(fails):
    fails(MemdiagError("over budget", exit_code=1))
    assert main(["analyze", "x.pkl"]) == 1


def test_an_internal_error_shows_no_traceback(fails, capsys):
    fails(KeyError("boom"))
    assert main(["analyze", "x.pkl"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: internal: KeyError: 'boom'\nhint: ")
    assert "MEMDIAG_DEBUG=1" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("error", [KeyError("boom"), MemdiagError("boom"), MemoryError()])
def test_debug_shows_the_traceback_and_keeps_the_code(fails, capsys, monkeypatch, error):
    monkeypatch.setenv("MEMDIAG_DEBUG", "1")
    fails(error)
    assert main(["analyze", "x.pkl"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "error: " in shown


def test_trouble_with_a_file(fails, capsys):
    fails(OSError(36, "File name too long", "x.pkl"))
    assert main(["analyze", "x.pkl"]) == 2
    assert capsys.readouterr().err.startswith("error: x.pkl: File name too long\nhint: ")


def test_too_little_memory(fails, capsys):
    fails(MemoryError())
    assert main(["analyze", "x.pkl"]) == 2
    assert "not enough memory" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(fails, capsys):
    fails(KeyboardInterrupt())
    assert main(["analyze", "x.pkl"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_an_interrupt_in_a_compiled_loop_is_one_too(fails, capsys):
    error = SystemError("returned a result with an exception set")
    error.__cause__ = KeyboardInterrupt()
    fails(error)
    assert main(["analyze", "x.pkl"]) == 130
    assert capsys.readouterr().err == ""


def test_a_missing_file(capsys, tmp_path):
    pytest.importorskip("memdiag.analyzers.report", reason="the analysis is not there yet")
    assert main(["analyze", str(tmp_path / "no.pkl")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint"]


def test_a_reader_that_goes_away_is_no_error():
    """A closed pipe is no error, even if it is closed before the first write, as by ``| head -0``."""
    program = (
        "import sys\nfrom memdiag.cli.talk import write_out\n"
        "sys.stdin.readline()\nwrite_out('x' * 1_000_000)\nwrite_out('y')\nprint('alive', file=sys.stderr)"
    )
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=write, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(write)
        os.close(read)
        _, error = process.communicate("\n")
    assert process.returncode == 0
    assert error == "alive\n"


def stderr_of(program, **variables):
    """Returns the output of a program to a terminal as its stderr."""
    import pty

    parent, child = pty.openpty()
    environment = {"TERM": "xterm", **variables}
    subprocess.run(
        [sys.executable, "-c", program],
        stderr=child,
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, **environment},
    )
    os.close(child)
    written = b""
    try:
        while piece := os.read(parent, 1000):
            written += piece
    except OSError:  # Linux raises this if the other end is closed
        pass
    os.close(parent)
    return written.decode()


def test_progress_shows_on_a_terminal_and_is_wiped_out():
    program = "from memdiag.cli.talk import busy\nwith busy('reading \\x1b[31mx'): pass"
    assert stderr_of(program) == "reading \\x1b[31mx\r\x1b[K"
    assert stderr_of(program, TERM="dumb") == ""


def test_progress_is_silent_elsewhere(capsys):
    from memdiag.cli.talk import busy

    with busy("reading"):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_of_stdout(encoding):
    program = "import sys; from memdiag.cli.talk import say, write_out; write_out('█ 模 \\ud800\\n'); say('… 模')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.stdout.decode(encoding).rstrip().endswith("\\ud800")
    assert "Traceback" not in done.stderr.decode(encoding)


@pytest.mark.parametrize("command", ["", "plot", "fleet", "record"])
def test_help_is_shown_where_there_is_ascii_only(command, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main([*command.split(), "--help"]) == 0
    stream.flush()
    shown = stream.buffer.getvalue().decode("ascii")
    assert "memdiag" in shown
    assert "\\u" not in shown


def test_python_dash_m():
    done = subprocess.run([sys.executable, "-m", "memdiag", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("memdiag ")


@pytest.mark.parametrize(
    "command", ["analyze FILE", "analyze FILE --json", "oom 'CUDA out of memory.'", "conf --list", "devices"]
)
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&-"])
def test_a_closed_stdout_is_an_error_and_no_bug(goldens, command, closed):
    file = goldens / "cuda-2.13.0-oom" / "snapshot.pickle"
    line = f"{shlex.quote(sys.executable)} -m memdiag {command.replace('FILE', shlex.quote(str(file)))} {closed}"
    # Only a shell can close stdout before the start.
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert done.returncode == 2
    if "2>&-" not in closed:
        assert done.stderr.startswith("error: stdout is closed")
        assert "internal" not in done.stderr


def test_json_is_the_only_thing_on_stdout(monkeypatch, samples, capsys):
    monkeypatch.setattr(command, "_report", lambda *_, **__: (None, samples.rich()))
    assert main(["analyze", "x.pkl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 2


@pytest.mark.parametrize("command", ["", "analyze", "oom", "simulate", "tune", "plan", "record", "try"])
def test_help_shows_no_value_for_what_takes_none(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    assert "bool" not in capsys.readouterr().out.lower()


def test_the_language_is_chosen_wherever_the_option_stands(goldens, monkeypatch):
    file = str(next(goldens.glob("cuda-*/snapshot.pickle")))
    monkeypatch.setenv("MEMDIAG_LANG", "zh")
    for arguments, expected in (
        (["analyze", file, "--lang", "zh"], "zh"),
        (["--lang=en", "analyze", file], "en"),
        (["analyze", file], "zh"),
        (["analyze", file, "--json"], "en"),  # JSON for scripts is English in every locale
        (["analyze", file, "--json", "--lang", "zh"], "zh"),
    ):
        assert main(arguments) == 0
        assert language() == expected, arguments
    set_language("en")


def test_an_unknown_language_is_an_error(capsys):
    assert main(["analyze", "--lang", "fr"]) == 2
    assert "en (English) and zh (Chinese)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan FILE", "devices", "simulate --policy stitch FILE"])
def test_a_report_fits_80_columns(goldens, monkeypatch, capsys, command):
    monkeypatch.setenv("COLUMNS", "80")
    file = goldens / "cuda-2.13.0-train" / "snapshot.pickle"
    monkeypatch.chdir(file.parent)
    assert main(command.replace("FILE", file.name).split()) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []
