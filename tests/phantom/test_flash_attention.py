"""The stand-in for flash-attn's compiled part requests the memory that the compiled part requests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.phantom import cuda_stand_in

PROGRAM = Path(__file__).with_name("programs") / "flash_attention.py"
WORLD = Path(__file__).parents[2] / "memdiag" / "phantom" / "boot" / "world.py"


def asked(tmp_path, what, argument, **more):
    done = cuda_stand_in.run([PROGRAM, what, json.dumps(argument)], tmp_path, **more)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@cuda_stand_in.needs_torch
@pytest.mark.parametrize("shape", [(2, 512, 8, 64), (1, 100, 4, 128), (3, 1024, 2, 96), (8, 2048, 16, 128)])
def test_requests_are_those_of_pytorchs_own_copy_of_the_kernels(tmp_path, shape):
    stand_in, own = asked(tmp_path, "both", shape)
    forward, backward = ([size for size in each if size > 0] for each in stand_in)
    own_forward, own_backward = ([size for size in each if size > 0] for each in own)
    assert [*forward, 8] == own_forward  # PyTorch's has one more result, of 8 bytes
    assert backward == own_backward


@cuda_stand_in.needs_torch
def test_heads_are_padded_by_the_compiled_part_before_version_2_7(tmp_path):
    shapes, forward, backward = asked(tmp_path, "row", [2, 5, 0])
    wide, narrow = 300 * 8 * 104 * 2, 300 * 2 * 104 * 2
    assert shapes == [[300, 8, 100], [2, 8, 200], [300, 8, 104], [300, 2, 104], [300, 2, 104], [2, 8, 256]]
    assert forward == [wide, narrow, narrow, wide, 2 * 8 * 200 * 4, 16]
    total = (300 + 2 * 128) * 8 * 128 * 4
    assert [size for size in backward if size > 0] == [
        *(wide, narrow, narrow, wide, 2 * 8 * 256 * 4, total, wide, wide)
    ]
    assert sum(backward) == wide + 2 * narrow + 2 * 8 * 256 * 4


@cuda_stand_in.needs_torch
@pytest.mark.parametrize("version", [[2, 6, 3], [2, 8, 3]])
def test_sums_of_sequences_in_one_row_are_not_padded_from_version_2_6_on(tmp_path, version):
    shapes, forward, backward = asked(tmp_path, "row", version)
    assert shapes[1] == [8, 300]
    assert shapes[-1] == [8, 556]
    assert 8 * 300 * 4 in forward
    assert backward.count(300 * 8 * 104 * 2) == (4 if version[1] == 6 else 3)  # with the padded gradient
    assert (300 + 2 * 128) * 8 * 128 * 4 in backward


@cuda_stand_in.needs_torch
def test_cards_before_ampere_are_refused_as_flash_attn_refuses_them(tmp_path):
    done = cuda_stand_in.run([PROGRAM, "both", "[1, 8, 1, 64]"], tmp_path, device="cuda:t4")
    assert "FlashAttention only supports Ampere GPUs or newer." in done.stderr


def test_an_installed_module_is_preferred_to_the_stand_in(tmp_path):
    (tmp_path / "flash_attn_2_cuda.py").write_text("real = True")
    code = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('world', sys.argv[1]);"
        "m = u.module_from_spec(s); s.loader.exec_module(m); m.begin();"
        "print(u.find_spec('flash_attn_2_cuda').origin)"
    )
    found = []
    for folder in (tmp_path, tmp_path / "none"):
        done = subprocess.run(
            [sys.executable, "-S", "-c", code, str(WORLD)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": str(folder)},
        )
        found.append(Path(done.stdout.strip()).name)
    assert found == ["flash_attn_2_cuda.py", "flash_attention.py"]
