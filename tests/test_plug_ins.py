"""Other packages add sources, dialects, devices, policies and analyzers by entry points; failures end no command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "gpt-train.pickle"

SOURCE = """
from memdiag.sources.torch_snapshot import read as read_snapshot

FORMAT = "toy"

def sniff(head):
    return head.startswith(b"TOY ")

def read(path):
    target = path.read_text().split()[1]
    if target == "nowhere":
        raise ZeroDivisionError("no target")
    from pathlib import Path
    return read_snapshot(Path(target))
"""
ANALYZER = """
from memdiag.results.finding import Finding

CODES = {"TOY1": "a toy"}

def analyze(trace, context):
    yield Finding("TOY1", "A toy finding", "info")
"""
DIALECT = """
from memdiag.oom.model import Found
from memdiag.oom.squeezed import pattern
from memdiag.results.oom import Judgement

FORMATS = ("toy",)
ANCHORS = ("toyallocatorisempty",)
EXAMPLES = (("toy", "ToyAllocator is empty"),)
_SAID = pattern("ToyAllocator is empty")

def find(text):
    for match in _SAID.finditer(text.text):
        yield Found(match.start(), match.end(), "toy", "toy", "cuda", {}, Judgement("capacity", "high"))
"""
ENTRY_POINTS = """
[memdiag.sources]
toy = toy_plug_in.source
missing = toy_plug_in.nothing

[memdiag.analyzers]
toy = toy_plug_in.analyzer
bare = toy_plug_in
raising = toy_plug_in.raising
peak = toy_plug_in.analyzer

[memdiag.dialects]
toy = toy_plug_in.dialect
broken = toy_plug_in.broken

[memdiag.policies]
toy = memdiag.allocator.policies.caching.policy:CACHING
broken = toy_plug_in.broken

[memdiag.devices]
toy-1g = toy_plug_in:DEVICE
bad = toy_plug_in:BAD
"""
INIT = """
DEVICE = {"backend": "cuda", "product": "Toy 1G", "total": "1GiB", "context": "128MiB", "capability": "9.0", "sms": 2}
BAD = {"backend": "abacus"}
"""
FILES = {
    "toy_plug_in/__init__.py": INIT,
    "toy_plug_in/source.py": SOURCE,
    "toy_plug_in/analyzer.py": ANALYZER,
    "toy_plug_in/dialect.py": DIALECT,
    "toy_plug_in/raising.py": "CODES = {}\ndef analyze(trace, context):\n    raise ZeroDivisionError('a bug')\n",
    "toy_plug_in/broken.py": "import a_module_that_nobody_has\n",
    "toy_plug_in-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy-plug-in\nVersion: 1.0\n",
    (
        "toy_plug_in-1.0.dist-info/WHEEL"
    ): "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "toy_plug_in-1.0.dist-info/entry_points.txt": ENTRY_POINTS,
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder in which pip has installed a package with plug-ins."""
    folder = tmp_path_factory.mktemp("plug-ins")
    wheel = folder / "toy_plug_in-1.0-py3-none-any.whl"
    record = "".join(f"{name},,\n" for name in [*FILES, "toy_plug_in-1.0.dist-info/RECORD"])
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, text in {**FILES, "toy_plug_in-1.0.dist-info/RECORD": record}.items():
            packed.writestr(name, text)
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", "--target", target, wheel], check=True)
    return target


def run(installed: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    paths = [str(installed), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MEMDIAG_LANG": "en"}
    return subprocess.run(
        [sys.executable, "-m", "memdiag", *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_a_source_and_an_analyzer_of_another_package_take_part(installed, tmp_path):
    file = tmp_path / "trace.toy"
    file.write_text(f"TOY {EXAMPLE}")
    done = run(installed, "analyze", "--json", file)
    assert done.returncode == 0, done.stderr
    assert "TOY1" in {finding["code"] for finding in json.loads(done.stdout)["findings"]}
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    package = "(package toy-plug-in 1.0):"
    assert [line for line in notes if "analyzer peak" in line] == [
        f"note: memdiag does not use the analyzer peak {package} memdiag or another plug-in already uses this name"
    ]
    assert [line for line in notes if "analyzer raising" in line] == [
        f"note: memdiag does not use the analyzer raising {package} ZeroDivisionError: a bug"
    ]
    assert len([line for line in notes if "analyzer bare" in line and "has no CODES, analyze" in line]) == 1
    assert "Traceback" not in done.stderr


def test_a_source_that_fails_is_one_error(installed, tmp_path):
    file = tmp_path / "trace.toy"
    file.write_text("TOY nowhere")
    done = run(installed, "analyze", file)
    assert done.returncode == 2
    assert "error: the plug-in toy (package toy-plug-in 1.0) failed: ZeroDivisionError: no target" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_source_is_not_looked_for_where_memdiag_reads_the_format_itself(installed):
    done = run(installed, "analyze", EXAMPLE)
    assert done.returncode == 0
    assert "source missing" not in done.stderr


def test_a_policy_can_be_chosen_and_a_broken_one_is_one_error(installed):
    done = run(installed, "simulate", EXAMPLE, "--policy", "toy", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["policy"] == "toy"
    done = run(installed, "simulate", EXAMPLE, "--policy", "broken")
    assert done.returncode == 2
    assert "the plug-in broken (package toy-plug-in 1.0) cannot be loaded: ModuleNotFoundError" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dialect_reads_its_messages(installed, tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("step 3\nToyAllocator is empty\n")
    done = run(installed, "oom", "--json", file)
    assert done.returncode == 0, done.stderr
    assert [message["dialect"] for message in json.loads(done.stdout)["messages"]] == ["toy"]
    assert "note: memdiag does not use the dialect broken (package toy-plug-in 1.0): the plug-in broken" in done.stderr


def test_a_device_is_listed_and_a_bad_one_is_left_out(installed):
    done = run(installed, "devices", "--json")
    assert done.returncode == 0, done.stderr
    assert "toy-1g" in done.stdout
    assert "note: memdiag does not use the device bad (package toy-plug-in 1.0): backend 'abacus'" in done.stderr


def test_the_package_in_the_page_works_as_the_page_says(tmp_path):
    """Its code blocks are installed as the files that their first lines name; a second analyzer in its place fails."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```\w+\n# (\S+)[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    shown = re.findall(r"^```text\n(.*)\n```$", page, re.MULTILINE)
    groups = tomllib.loads(blocks.pop("pyproject.toml"))["project"]["entry-points"]
    entries = "".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in each.items())
        for group, each in groups.items()
    )
    files = {
        **blocks,
        "toy_memdiag-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy-memdiag\nVersion: 1.0\n",
        "toy_memdiag-1.0.dist-info/entry_points.txt": entries,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run(tmp_path, "analyze", "--full", "--no-replay", EXAMPLE)
    assert [line for line in done.stdout.splitlines() if "TOY101" in line] == [shown[0]]
    assert "x200-96g" in run(tmp_path, "devices").stdout
    (tmp_path / "toy_memdiag" / "large.py").write_text("CODES = {}\ndef analyze(trace, context):\n    1 / 0\n")
    assert shown[1] in run(tmp_path, "analyze", "--no-replay", EXAMPLE).stderr.splitlines()


def test_plug_ins_are_looked_for_without_importing_importlib_metadata_where_there_are_none():
    code = (
        "import sys; from memdiag.allocator.policies import POLICIES; list(POLICIES); sys.exit('importlib.metadata' in "
        "sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-S", "-c", code], env=environment, check=False).returncode == 0
