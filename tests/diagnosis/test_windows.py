"""Lines to paste for the command prompt of Windows."""

from __future__ import annotations

import json

import pytest

from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.joined import join
from memdiag.diagnosis.windows import for_windows, line_for_windows
from memdiag.render import renderer
from memdiag.render.analyze.html import data_of
from memdiag.render.support.look import Look
from memdiag.results.finding import Fix
from memdiag.views.picture import build_picture
from tests.analyzers.heaps import MIB, Heap


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("export A_CONF=max_split_size_mb:128", "set A_CONF=max_split_size_mb:128"),
        ("export A_CONF='roundup_power2_divisions:[>:4]'", 'set "A_CONF=roundup_power2_divisions:[>:4]"'),
        ('export NODE_OPTIONS="--max-old-space-size=8192"', "set NODE_OPTIONS=--max-old-space-size=8192"),
        ("export A=false B=true", "set A=false\nset B=true"),
        ("unset A_CONF", "set A_CONF="),
        ("OLLAMA_KEEP_ALIVE=0 ollama serve", 'set "OLLAMA_KEEP_ALIVE=0" && ollama serve'),
        ("pip install -U torch", "pip install -U torch"),
        ("set A_CONF=x", "set A_CONF=x"),
        ("x = export_model()", "x = export_model()"),
        ("batch_size = 4", "batch_size = 4"),
    ],
)
def test_a_line_has_the_form_of_the_command_prompt(line, expected):
    assert line_for_windows(line) == expected


def test_remedies_of_unix_are_left_out():
    assert for_windows(Fix("Make room", "code", "df /dev/shm")) is None
    both = for_windows(Fix("Update", "version", "pip install -U torch\nexport A=1"))
    assert both is not None
    assert both.change == "pip install -U torch\nset A=1"


@pytest.fixture(scope="module")
def windows_trace():
    heap = Heap()
    heap.checkerboard()
    heap.oom(64 * MIB, where="C:\\work\\train.py:7 main")
    return heap.trace()


@pytest.mark.parametrize("form", ["terminal", "full", "md", "html", "json"])
def test_every_form_of_a_report_has_lines_for_windows(windows_trace, form):
    report = build_report(windows_trace)
    assert any(fix.change.startswith("set PYTORCH") for finding in report.findings for fix in finding.fixes)
    if form == "html":
        page = data_of(build_picture(windows_trace, report), "en")  # its texts on each code contain examples
        text = json.dumps([page["report"], page["spoken"]["en"]["finding_words"]])
    else:
        text = renderer("analyze", form)(report, Look())
    assert "export PYTORCH" not in text
    assert "unset PYTORCH" not in text
    assert "set PYTORCH" in text or form == "terminal"  # the short form has the first remedy only


def test_a_message_joined_with_a_trace_of_windows_has_lines_for_windows(windows_trace):
    fixes = [fix for message in join(None, windows_trace).messages for f in message.findings for fix in f.fixes]
    assert any(fix.change.startswith("set ") for fix in fixes)
    assert not any("export " in fix.change for fix in fixes)
