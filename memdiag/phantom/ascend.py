"""The simulated Ascend runtime: compiled for the torch_npu of a Python, with an environment that replaces CANN."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.text import phrase

from . import build, entry_points, sharing
from .installed import Installed
from .profiles import Profile

SUPPORTED = ((2, 6), (2, 14))
VALUES = ("zeros", "ones", "random", "finite")  # values that operator results may read as

# The preloaded library has the name of a MindStudio memory tool, since torch_npu reports its blocks only to that
# (npu/blocks.c).
PRELOADED = "libascend_kernel_hook.so"
_MAIN = "libascendcl.so"
# a PyTorch function that a second caller with the same settings does not survive
_PARSER = b"registerDeviceConfigParserHook"
_EMPTY = (
    "libhccl.so",
    "libhcomm.so",
    "libacl_op_compiler.so",
    "libge_runner.so",
    "libgraph.so",
    "libacl_tdt_channel.so",
    "libopapi.so",
    "libnnopbase.so",
    "libmsprofiler.so",
    "libascend_hal.so",
    "libascend_dump.so",
    "libmspti.so",
    "libms_tools_ext.so",
    "libascend_ml.so",
    "libdcmi.so",
    "libruntime.so",
    "libprofapi.so",
)
_SOURCES = Path(__file__).with_name("npu")
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread")
_HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_AICPU_PATH", "ASCEND_HOME")
_OF_CANN = ("libascendcl.so", "libascend_hal.so", "libhccl.so", "libruntime.so", "libopapi.so")


def stand_in(installed: Installed) -> Path:
    """Returns the folder of the simulated libraries, compiling them if necessary.

    Raises:
        MemdiagError: torch_npu is unknown, or cannot be imported with its torch, or there is no compiler.
    """
    version = installed.version_of("torch_npu")
    if not version:
        raise MemdiagError(
            phrase("phantom.no-torch-npu", python=installed.python), installed.hint(phrase("phantom.no-torch-npu.hint"))
        )
    first, last = SUPPORTED
    if not first <= _release(version) <= last:
        raise MemdiagError(
            phrase("phantom.torch-npu", version=version, first=f"{first[0]}.{first[1]}", last=f"{last[0]}.{last[1]}"),
            phrase("phantom.torch-npu.hint"),
        )
    _refuse_clash(installed, version)
    libraries = sorted(
        path
        for path in Path(installed.folder_of("torch_npu")).rglob("*.so")
        if path.parent.name in {"lib", "torch_npu"}
    )
    facts = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in libraries]
    compiler = build.find_compiler("c")
    sources = sorted(
        [
            *_SOURCES.iterdir(),
            *sharing.SOURCES.iterdir(),
            *(Path(__file__).with_name(name) for name in ("ascend.py", "entry_points.py")),
        ]
    )

    def make(folder: Path) -> None:
        _compile(compiler, libraries, folder)

    return build.cached(
        f"npu-{version}", [version, *facts, compiler.version, *(path for path in sources if path.is_file())], make
    )


def _refuse_clash(installed: Installed, version: str) -> None:
    """Refuses a torch_npu that clashes with a CUDA build of torch.

    From about 2.10 on, torch_npu registers a parser of allocator settings with PyTorch.

    So does CUDA, and if both do, the import aborts.
    """
    ours = Path(installed.folder_of("torch_npu")) / "lib" / "libtorch_npu.so"
    if not installed.version_of("torch") or not ours.is_file() or not ours.stat().st_size:
        return
    if not (Path(installed.folder_of("torch")) / "lib" / "libc10_cuda.so").is_file():
        return
    with ours.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        clashes = content.find(_PARSER) >= 0
    if clashes:
        raise MemdiagError(
            phrase("phantom.clash", torch=installed.version_of("torch"), version=version), phrase("phantom.clash.hint")
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _compile(compiler: build.Compiler, libraries: list[Path], folder: Path) -> None:
    """Compiles all functions into one library.

    The other libraries are empty and link to it, so each function is found under any name.
    """
    generated = folder / "entry_points.c"
    generated.write_text(entry_points.generate(libraries), encoding="utf-8")
    sources = sorted(_SOURCES.glob("*.c"))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(lambda source: _object(compiler, source, folder), [generated, *sources]))
    compiler.run([*_FLAGS, f"-Wl,-soname,{_MAIN}", "-o", folder / _MAIN, *objects, "-ldl"])
    empty = folder / "empty.c"
    empty.write_text("typedef int empty;\n", encoding="utf-8")
    for name in _EMPTY:
        _needing(compiler, name, [_MAIN], empty, folder)
    _needing(compiler, PRELOADED, [_MAIN, *_EMPTY], empty, folder)
    for path in (generated, empty, *objects):
        path.unlink()
    (folder / "lib64").symlink_to(".")
    for part in ("runtime", "compiler", "opp"):  # torch_npu checks whether CANN has them
        (folder / part).mkdir()


def _object(compiler: build.Compiler, source: Path, folder: Path) -> Path:
    made = folder / f"{source.stem}.o"
    flags = [flag for flag in _FLAGS if flag != "-shared"]
    compiler.run([*flags, f"-I{_SOURCES}", "-c", "-o", made, source])
    return made


def _needing(compiler: build.Compiler, name: str, needed: list[str], source: Path, folder: Path) -> None:
    compiler.run(
        [
            *_FLAGS,
            f"-Wl,-soname,{name}",
            "-o",
            folder / name,
            source,
            "-Wl,--no-as-needed",
            "-Wl,--disable-new-dtags",
            f"-L{folder}",
            *(f"-l:{other}" for other in needed),
            "-Wl,-rpath,$ORIGIN",
        ]
    )


def environment(profile: Profile, folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment with which a program finds the simulated runtime in ``folder``, and no real CANN.

    No process below can reach a real NPU. The folders of CANN are removed from the paths, and since the simulated
    runtime is preloaded, a start-up file cannot load the real libraries first.
    """
    figures = profile.figures
    paths = [entry for entry in base.get("LD_LIBRARY_PATH", "").split(":") if entry and not _is_cann(entry)]
    preloads = [
        entry
        for entry in base.get("LD_PRELOAD", "").replace(" ", ":").split(":")
        if entry and "ascend" not in entry.lower()
    ]
    changed = {
        "LD_LIBRARY_PATH": ":".join([str(folder), *paths]),
        "LD_PRELOAD": ":".join([str(folder / PRELOADED), *preloads]),
        **dict.fromkeys(_HOMES, str(folder)),
        "ASCEND_OPP_PATH": str(folder / "opp"),
        "MEMDIAG_PHANTOM_NPU_TOTAL": str(profile.total_bytes),
        "MEMDIAG_PHANTOM_NPU_CONTEXT": str(profile.context_bytes),
        "MEMDIAG_PHANTOM_NPU_SOC": str(figures["soc"]),
        "MEMDIAG_PHANTOM_NPU_CANN": str(figures["cann"]),
        "MEMDIAG_PHANTOM_NPU_DRIVER": str(figures["driver"]),
        "MEMDIAG_PHANTOM_NPU_CUBE_CORES": str(figures["cube_cores"]),
        "MEMDIAG_PHANTOM_NPU_VECTOR_CORES": str(figures["vector_cores"]),
        "MEMDIAG_PHANTOM_NPU_DEVICES": str(profile.num_devices or 0),
        "TASK_QUEUE_ENABLE": base.get("TASK_QUEUE_ENABLE") or "0",
        # Otherwise a thread holds the tensors of collectives until its next check, which on a simulated device may be
        # at once or steps later.
        **{name: base.get(name) or "0" for name in ("TORCH_HCCL_ASYNC_ERROR_HANDLING", "HCCL_ASYNC_ERROR_HANDLING")},
    }
    return {**base, **changed}


def _is_cann(entry: str) -> bool:
    return any(os.path.lexists(f"{entry}/{name}") for name in _OF_CANN)


MADE_UP = (  # true only for results that --compute small did not compute
    (
        "results of operators read as zeros, unless --values says otherwise; outputs whose size depends on data are as "
        "large as they can be"
    ),
    "made-up numbers are finite, and valid where a distribution checks them",
)
ASSUMPTIONS = (
    "operators take no scratch memory, where those of a device may ask for some",
    (
        "HCCL's buffers are counted as documented, 2 x HCCL_BUFFSIZE (200 MB) for each communicator; other memory of "
        "the driver is not"
    ),
    "all work on the device is done at once: a block used on several streams is free again as soon as it is freed",
    "every rank of a group has the data of this one",
    "operators are queued as with TASK_QUEUE_ENABLE=0, unless it is set, so that runs are repeatable",
)
