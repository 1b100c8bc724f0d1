"""memdiag fix --write: both files are written, or none."""

from dataclasses import replace

import pytest

from memdiag.errors import MemdiagError
from memdiag.fix import write
from memdiag.fix.base import Proposal
from memdiag.fix.edit import Edit
from memdiag.fix.run import Applied
from memdiag.text import phrase

SCRIPT = '"""Trains."""\n\nimport torch\n'
REMEDY = Proposal(
    "free-gradients",
    phrase("fix.free-gradients"),
    (),
    Edit(),
    "",
    phrase("fix.free-gradients.caveat"),
    None,
    "free_gradients",
)
PLAN = Applied((REMEDY,), "PYTORCH_CUDA_ALLOC_CONF")


@pytest.fixture
def script(tmp_path):
    made = tmp_path / "train.py"
    made.write_bytes(SCRIPT.encode())
    return made


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("has_module", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemdiagError])
@pytest.mark.parametrize(("at", "is_before"), [(1, True), (1, False), (2, True), (2, False)])
def test_an_interruption_while_files_are_written(script, monkeypatch, has_module, error, at, is_before):
    if has_module:
        script.with_name("memdiag_fix.py").write_text("# from an earlier run\n")
    before = contents(script.parent)
    original, calls = write.write_whole, []

    def interrupted(file, content):
        calls.append(file)
        if len(calls) == at and is_before:
            raise error("stopped")
        original(file, content)
        if len(calls) == at:
            raise error("stopped")

    monkeypatch.setattr(write, "write_whole", interrupted)
    with pytest.raises(error):
        write.write(PLAN, ["python", str(script)])
    assert contents(script.parent) == before


def test_the_script_keeps_its_mode_and_line_ends(script):
    script.write_bytes(SCRIPT.replace("\n", "\r\n").replace("import torch", "\f# model\r\nimport torch").encode())
    script.chmod(0o755)
    files = write.write(PLAN, ["python", str(script)])
    assert files == (str(script.with_name("memdiag_fix.py")), str(script))
    assert script.stat().st_mode & 0o777 == 0o755
    assert script.read_bytes().splitlines(keepends=True) == [
        b'"""Trains."""\r\n',
        b"\r\n",
        b"\x0c# model\r\n",
        b"import memdiag_fix  # written by memdiag fix; before torch\r\n",
        b"import torch\r\n",
    ]
    assert write.write(PLAN, ["python", str(script)]) == (str(script.with_name("memdiag_fix.py")),)  # imported already


@pytest.mark.parametrize("content", [b"print 1\n", b"# caf\xe9\nimport torch\n"])
def test_a_script_that_cannot_be_read(script, content):
    script.write_bytes(content)
    with pytest.raises(MemdiagError, match="could write an import"):
        write.write(PLAN, ["python", str(script)])
    assert contents(script.parent) == {"train.py": content}


def test_lines_of_the_program_are_named_by_paths_that_can_move_with_it(script):
    calls = [[[str(script), 3], [str(script.parent / "parts" / "model.py"), 7], ["/elsewhere/model.py", 1]]]
    remedy = replace(REMEDY, inside="no_grad_at", settings={"calls": calls})
    write.write(replace(PLAN, chosen=(remedy,)), ["python", str(script)])
    last = script.with_name("memdiag_fix.py").read_text().splitlines()[-1]
    assert last == "no_grad_at(calls=[[['train.py', 4], ['parts/model.py', 7], ['/elsewhere/model.py', 1]]])"
