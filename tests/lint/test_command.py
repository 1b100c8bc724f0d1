"""``memdiag lint`` handles files, output forms, exit statuses and invalid input."""

from __future__ import annotations

import json

import pytest

from memdiag.cli.main import main

BAD = """\
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return x.max().item()  # "%0A", <b> and 100%
"""


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "src" / ".venv").mkdir(parents=True)
    (tmp_path / "src" / "net.py").write_text(BAD)
    (tmp_path / "src" / ".venv" / "hidden.py").write_text(BAD)
    (tmp_path / "src" / "old.py").write_text("print 'torch'  # .item(\n")
    (tmp_path / "src" / "latin.py").write_bytes(b"# torch .item( \xff\n")
    (tmp_path / "src" / "null.py").write_bytes(b"import torch\0 .item(\n")
    return tmp_path / "src"


def test_json_names_places_and_files_that_could_not_be_read(tree, capsys):
    assert main(["lint", str(tree), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["num_files"] == 4
    assert [finding["code"] for finding in report["findings"]] == ["MD806"]
    assert report["findings"][0]["evidence"][0]["where"] == f"{tree / 'net.py'}:4"
    assert {note["code"] for note in report["notes"]} == {"MD940"}
    assert len(report["notes"]) == 3


def test_text_says_what_and_what_to_do(tree, capsys):
    assert main(["lint", str(tree / "net.py")]) == 0
    out = capsys.readouterr().out
    assert "net.py:4" in out
    assert "What to do" in out
    assert "ignore[MD806]" in out


def test_fail_on_and_select(tree, capsys):
    assert main(["lint", str(tree), "--fail-on", "warning"]) == 1
    assert main(["lint", str(tree), "--fail-on", "MD804"]) == 0
    assert main(["lint", str(tree), "--select", "md804", "--fail-on", "warning"]) == 0
    (tree / "fine.py").write_text("import torch\n")
    assert main(["lint", str(tree), "--exclude", "net.py", "--fail-on", "warning"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("text", ["def f(:\n", "import torch\ndef f(:\n"])
def test_a_file_with_a_syntax_error_is_not_ok(tmp_path, capsys, text):
    """A file with a syntax error gives exit status 2 if it is named on the command line.

    In a directory, the verdict counts it together with the files that could be checked.
    """
    bad, fine = tmp_path / "bad.py", tmp_path / "fine.py"
    bad.write_text(text)
    assert main(["lint", str(bad)]) == 2
    shown = capsys.readouterr().out
    assert shown.startswith("NOT CHECKED  1 file could not be checked")
    assert "not valid Python" in " ".join(shown.split())
    fine.write_text("import torch\n")
    assert main(["lint", str(fine), str(bad)]) == 2
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith("NOT CHECKED 1 of 2 files could not be checked; no costly habit found in the others")
    assert main(["lint", str(bad), "--format", "github"]) == 2
    assert "::warning file=" in capsys.readouterr().out


def test_a_directory_without_python_is_not_ok(tmp_path, capsys):
    assert main(["lint", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("NOT CHECKED  the given paths contain no Python file")


def test_a_directory_with_one_bad_file_is_checked(tmp_path, capsys):
    (tmp_path / "bad.py").write_text("import torch\nx.item(\n")
    assert main(["lint", str(tmp_path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["num_unchecked"] == 1
    (tmp_path / "fine.py").write_text("import torch\n")
    assert main(["lint", str(tmp_path), "--json"]) == 0
    capsys.readouterr()


def test_github_annotations_are_one_line_each_and_escaped(tree, capsys):
    odd = tree / "a,b:c%.py"
    odd.write_text(BAD)
    assert main(["lint", str(odd), "--format", "github"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("::warning file=")
    assert "a%2Cb%3Ac%25.py,line=4,title=MD806::" in lines[0]


def test_sarif_has_rules_and_results(tree, tmp_path, capsys):
    out = tmp_path / "lint.sarif"
    assert main(["lint", str(tree), "-o", str(out)]) == 0
    run = json.loads(out.read_text())["runs"][0]
    result = run["results"][0]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "MD806"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 4
    capsys.readouterr()


@pytest.mark.parametrize("arguments", [[], ["nowhere.py"], ["--select", "MD201", "."], ["--format", "xml", "."]])
def test_wrong_input_is_an_error_with_a_hint(arguments, capsys):
    assert main(["lint", *arguments]) == 2
    assert "hint:" in capsys.readouterr().err


def test_nothing_is_executed(tmp_path, capsys):
    (tmp_path / "evil.py").write_text("import torch\nopen('made', 'w').write('.item(')\n")
    assert main(["lint", str(tmp_path)]) == 0
    assert not (tmp_path / "made").exists()
    capsys.readouterr()
