"""The simulated Ascend runtime, compiled here and called as torch_npu calls it; needs a C compiler but no torch."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.phantom import ascend, build, entry_points
from memdiag.phantom.profiles import choose
from memdiag.units import MIB

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="simulated devices (--phantom) work on Linux only"),
    pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler"),
]

ASKS = """
extern int aclrtMalloc(void), aclrtMemExportToShareableHandle(void), aclrtSynchronizeDevice(void), printf(const char \
*, ...);
const char *late[] = {"aclnnInplaceAdds", "aclnnMatmul", "aclnnForeachAddScalar", "aclmdlRICondHandleCreate", \
"aclNotes of a sentence"};
int asks(void) { return aclrtMalloc() + aclrtMemExportToShareableHandle() + aclrtSynchronizeDevice() + printf("%s", \
late[0]); }
"""


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asking")
    (folder / "asks.c").write_text(ASKS)
    build.find_compiler("c").run(["-shared", "-fPIC", "-O0", "-o", folder / "libasks.so", folder / "asks.c"])
    return folder / "libasks.so"


@pytest.fixture(scope="module")
def stand_in(asking, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stand-in")
    ascend._compile(build.find_compiler("c"), [asking], folder)
    return folder


@pytest.fixture(scope="module")
def seen(stand_in):
    environment = ascend.environment(choose("npu:910b-64g,total=64MiB,context=8MiB,devices=2"), stand_in, os.environ)
    program = Path(__file__).with_name("programs") / "runtime.py"
    done = subprocess.run(
        [sys.executable, str(program), "libascendcl.so"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr.count("aclrtMemExportToShareableHandle") == 1  # reported once only
    return json.loads(done.stdout)


def test_memory_is_counted_in_pages_and_has_a_limit(seen):
    assert seen["memory"] == [56 * MIB, 64 * MIB]
    assert seen["one"] == seen["much"] == 0
    assert seen["after one byte"] == 54 * MIB
    assert seen["too much"] == 207001  # out of memory
    assert seen["given back"] == 54 * MIB


def test_addresses_are_the_same_in_every_run(seen):
    first, second = seen["addresses"]
    assert first in {0x120000000000, 0x1000000000}
    assert second == first + 2 * MIB


def test_copies_carry_bytes(seen):
    assert seen["copies"] == [0, 0, True]
    assert seen["within the device"] == [0, 0, True]
    assert seen["set"] == [0, 0, [7] * 4 + [ord("t")]]


def test_access_to_freed_memory_and_past_the_end_is_an_error(seen):
    assert seen["freed"] == [0, 107000, 107000]
    assert seen["past the end"] == 107000


def test_reserved_addresses_use_no_memory_and_physical_memory_does(seen):
    assert seen["reserved"] == seen["physical"] == seen["mapped"] == 0
    assert seen["reserving is free"] == 54 * MIB
    assert seen["after mapping"] == 34 * MIB
    assert seen["unmapped"] == [0, 0, 0, [0] * 4]
    assert seen["all back"] == 54 * MIB


def test_devices_beyond_the_last_are_errors(seen):
    assert seen["devices"] == [0, 107001]


def test_unsupported_functions_fail_with_their_name(seen):
    first, again, text = seen["refused"]
    assert first == again == 207000
    assert "aclrtMemExportToShareableHandle (libascendcl.so)" in text


def test_required_functions_are_read_from_the_calling_libraries(asking):
    assert entry_points.undefined_symbols(asking.read_bytes()) == {
        "aclrtMalloc",
        "aclrtMemExportToShareableHandle",
        "aclrtSynchronizeDevice",
    }
    source = entry_points.generate([asking])
    assert " aclrtMalloc(" not in source  # defined in the C sources
    assert "uint64_t aclrtSynchronizeDevice(void) { return 0; }" in source
    assert "aclnnInplaceAddsGetWorkspaceSize(const void *a0) { return changed_first(" in source
    assert "aclnnForeachAddScalarGetWorkspaceSize(" in source
    assert "uint64_t aclnnMatmul(void) { return 0; }" in source
    assert 'refuse("aclmdlRICondHandleCreate", "libascendcl.so")' in source
    assert "sentence" not in source


def test_a_file_that_is_no_library_requires_no_functions():
    assert entry_points.undefined_symbols(b"") == set()
    assert entry_points.undefined_symbols(b"#!/bin/sh\n") == set()


def test_a_real_runtime_is_never_loaded(stand_in, tmp_path):
    real = tmp_path / "cann" / "lib64"
    real.mkdir(parents=True)
    (tmp_path / "real.c").write_text('#include <stdio.h>\nint aclInit(void) { puts("REAL"); return 0; }\n')
    compiler = build.find_compiler("c")
    for name in ("libascendcl.so", "libhccl.so"):
        compiler.run(["-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", real / name, tmp_path / "real.c"])
    base = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{real}:{tmp_path}",
        "LD_PRELOAD": "",
        "ASCEND_HOME_PATH": str(real.parent),
    }
    environment = ascend.environment(choose("npu:910b-64g"), stand_in, base)
    assert environment["LD_LIBRARY_PATH"].split(":") == [str(stand_in), str(tmp_path)]
    assert environment["ASCEND_HOME_PATH"] == str(stand_in)
    start = "import ctypes; print([ctypes.CDLL(name).aclInit() for name in ('libascendcl.so', 'libhccl.so')])"
    # The shell puts the real library first again, as CANN's set_env.sh does.
    script = f'export LD_LIBRARY_PATH={real}:$LD_LIBRARY_PATH; exec "$0" -c "{start}"'
    done = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[0, 0]\n"
