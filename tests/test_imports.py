"""Start-up loads no slow module before it is needed. The tests check loaded modules, not the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {
    "numpy",
    "pandas",
    "numba",
    "llvmlite",
    "torch",
    "torch_npu",
    "ray",
    "scipy",
    "matplotlib",
    "sqlite3",
    "textual",
}

# Prints, on the last line of stderr, the top-level names of all loaded modules and those of memdiag in full.
PROBE = """
import sys
def work():
    {statement}
try:
    work()
except SystemExit as done:
    assert done.code in (None, 0), done.code
names = {{m if m.startswith("memdiag") else m.partition(".")[0] for m in sys.modules}}
print("\\n" + " ".join(sorted(names)), file=sys.stderr)
"""


def loaded_by(statement: str, *blocked: str) -> set[str]:
    """Returns the modules that ``statement`` loads in a new interpreter that cannot import the ``blocked`` ones."""
    block = "".join(f"import sys; sys.modules[{name!r}] = None\n" for name in blocked)
    program = block + PROBE.format(statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rstrip().rpartition("\n")[2].split())


def heavy(modules: set[str]) -> set[str]:
    return modules & HEAVY


# Tables of names and targets, for the help of options. They import an entry only on use.
TABLES = {"allocator": {"policies", "policies.base"}, "views": {"plots"}}
COMMAND_LINES = [["--help"], ["--version"], ["analyze", "--help"], ["view", "--help"]]


@pytest.mark.parametrize("arguments", COMMAND_LINES, ids=" ".join)
def test_help_and_version_load_nothing_heavy(arguments):
    modules = loaded_by(f"from memdiag.cli.main import main; sys.exit(main({arguments!r}))")
    assert heavy(modules) == set()
    tables = {f"memdiag.{room}.{table}" for room, names in TABLES.items() for table in names}
    tables |= {f"memdiag.{room}" for room in TABLES}
    rooms = {name.split(".")[1] for name in modules - tables if name.startswith("memdiag.")}
    assert rooms <= {"cli", "errors", "units", "text", "results", "registry", "render", "version"}


def test_version_does_not_load_rich():
    """``--version`` prints one line and does not load rich, which only help needs."""
    assert "rich" not in loaded_by("from memdiag.cli.main import main; sys.exit(main(['--version']))")


def test_importing_memdiag_loads_no_more_than_itself():
    assert {name for name in loaded_by("import memdiag") if name.startswith("memdiag")} == {"memdiag"}
    assert heavy(loaded_by("import memdiag")) == set()


@pytest.mark.parametrize(
    "module",
    [
        "settings",
        "settings.conf",
        "errors",
        "units",
        "results.report",
        "results.prediction",
        "results.fleet",
        "registry",
    ],
)
def test_the_bottom_of_the_house_is_light(module):
    modules = loaded_by(f"import memdiag.{module}")
    assert heavy(modules) == set()
    assert not modules & {"rich", "typer", "click"}


def test_public_names_come_without_pandas_or_torch():
    modules = loaded_by("import memdiag; memdiag.load; memdiag.analyze; memdiag.Trace; memdiag.Report")
    assert "numpy" in modules
    assert not modules & {"pandas", "torch", "torch_npu", "ray"}


def test_analyze_runs_where_pandas_and_torch_are_missing():
    statement = "import contextlib, io; from memdiag.cli.main import main\n"
    statement += (
        "    with contextlib.redirect_stdout(io.StringIO()): code = main(['analyze', 'examples/gpt-train.pickle', "
        "'--json'])\n"
    )
    statement += "    sys.exit(code)"
    modules = loaded_by(statement, "pandas", "torch", "torch_npu", "ray")
    assert "numpy" in modules
