"""Compiles the simulated CUDA runtime for the PyTorch of a Python, and prepares a program's environment.

The libraries have the names and symbol versions that PyTorch requires (libcudart.so.13, libcudnn.so.9) and are
preloaded, so the linker uses them instead of the toolkit's. Functions that are not simulated are generated: each prints
its name and fails.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.phantom import build, sharing
from memdiag.phantom.installed import Installed
from memdiag.phantom.profiles import Profile
from memdiag.text import phrase

from . import symbols

_HERE = Path(__file__).parent
_TABLE = _HERE / "libraries.toml"
_FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-pthread")
# libraries of the driver, which PyTorch looks for at run time
_SONAMES = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
}
_VERSION = re.compile(r"^cuda(?:: *[^=\n]*)? *= *['\"]([0-9]+)\.([0-9]+)", re.MULTILINE)

_ADDED = re.compile(r"-[0-9a-f]{8}(?=\.so)")  # suffix that auditwheel adds to a library in a wheel

# Libraries whose version PyTorch compares with that of its build; if it names none, that of torch 2.13.
_VERSIONS = {"cudnn": (9, 20, 0), "nccl": (2, 29, 7), "cublas": (13, 1, 1)}

PLANNER = "MEMDIAG_PHANTOM_CUDNN_PLANNER"  # path of a libcudnn_graph.so.9 of 9.8 or later
PLACEHOLDERS = "memdiag-placeholders.txt"  # next to torch's libraries: lists those that belong to the simulated runtime
SUPPORTED = (12, 13)
VALUES = ("zeros", "ones", "random", "finite")  # values that kernel results may read as, see core/made_up.h
MADE_UP = (  # true only for results that --compute small did not compute
    "what the program wrote is read back, results of kernels read as zeros (--values sets others)",
    "a mask that a kernel made selects all (MEMDIAG_PHANTOM_SELECTED, from 0 to 1, sets another share)",
    "made-up numbers are finite, and valid where a distribution checks them",
)
ASSUMPTIONS = (
    "the installed cuDNN, from 9.8 on, plans the workspaces of convolutions and attention without a card",
    (
        "other workspaces are 0: those of recurrent layers, cuSOLVER, cuFFT, cuSPARSE and, without such a cuDNN, "
        "of all its operators"
    ),
    "what cuDNN's recurrent layers keep for the backward pass is as large as cuDNN 9.20 says without a card",
    (
        "each communicator of NCCL takes an estimate by channels and NCCL_BUFFSIZE, which all-to-all exceeds "
        "(MEMDIAG_PHANTOM_NCCL_BYTES sets it); memory of other libraries is not counted"
    ),
    (
        "each node of an executable graph takes 5 KiB of the driver's memory, an estimate "
        "(MEMDIAG_PHANTOM_GRAPH_NODE_BYTES sets it; 2 to 64 KiB have been published)"
    ),
    "all work on the device is done at once: a block used on several streams is free again as soon as it is freed",
    "managed memory (cudaMallocManaged) is in host memory and does not count",
    "a scaler of gradients never meets an infinite one",
    "every rank of a group has the data of this one",
)


@dataclass(frozen=True)
class Torch:
    """One installed PyTorch, described by its files.

    Attributes:
        folder: The package.
        version: Its version.
    """

    folder: Path
    version: str

    @cached_property
    def libraries(self) -> list[symbols.Symbols]:
        """The ELF tables of its libraries."""
        return [symbols.read(path) for path in sorted((self.folder / "lib").glob("*.so"))]

    @cached_property
    def sonames(self) -> dict[str, str]:
        """Names of the required toolkit libraries: "libcudart" to "libcudart.so.13"."""
        needed = {name for library in self.libraries for name in library.needed}
        return {_stem(name): name for name in sorted(needed)}

    @cached_property
    def symbol_versions(self) -> dict[str, str]:
        """The required symbol version by library name."""
        return {name: version for library in self.libraries for name, version in library.versioned.items()}

    @cached_property
    def cuda(self) -> tuple[int, int]:
        """The version of CUDA it was built for, or (0, 0) for none."""
        try:
            found = _VERSION.search((self.folder / "version.py").read_text(encoding="utf-8"))
        except OSError:
            found = None
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def toolkit(self, soname: str) -> list[Path]:
        """Returns possible paths of the real library: in the wheels next to the package, or in its own folder."""
        if not soname:
            return []
        own = [] if soname in self.placeholders else self.folder.glob(f"lib/{soname}")
        return [*self.folder.parent.glob(f"nvidia/*/lib/{soname}"), *own]

    @property
    def placeholders(self) -> frozenset[str]:
        """The libraries in its own folder that belong to the simulated runtime, see placeholders.py."""
        try:
            return frozenset((self.folder / "lib" / PLACEHOLDERS).read_text(encoding="utf-8").split())
        except OSError:
            return frozenset()

    def version_of(self, library: str) -> tuple[int, int, int]:
        """Returns the version of a toolkit library: of the installed wheel, else of the one this torch is built for."""
        wheel = re.compile(rf"nvidia[-_]{library}(?:[-_]cu\d+)?[-<>=~( ]+(\d+)\.(\d+)\.(\d+)")
        installed = [path.name for path in self.folder.parent.glob(f"nvidia_{library}*.dist-info")]
        for text in [*installed, *self.requirements]:
            if found := wheel.match(text):
                return int(found[1]), int(found[2]), int(found[3])
        return _VERSIONS[library]

    @cached_property
    def requirements(self) -> list[str]:
        """The requirements in its metadata: "nvidia-cudnn-cu12==9.10.2.21; platform_system == …"."""
        try:
            lines = (
                (self.folder.parent / f"torch-{self.version}.dist-info" / "METADATA")
                .read_text(encoding="utf-8")
                .splitlines()
            )
        except OSError:
            return []
        return [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]


def stand_in(installed: Installed) -> Path:
    """Returns the folder of the simulated libraries, compiling them if necessary.

    Raises:
        MemdiagError: torch has no CUDA, or an unknown version; or there is no compiler.
    """
    if not installed.version_of("torch"):
        raise MemdiagError(
            phrase("phantom.no-torch", python=installed.python), installed.hint(phrase("phantom.no-torch.hint"))
        )
    torch = Torch(Path(installed.folder_of("torch")), installed.version_of("torch"))
    if torch.cuda[0] not in SUPPORTED or not (torch.folder / "lib" / "libtorch_cuda.so").is_file():
        built = (
            phrase("phantom.cuda.version", version=f"{torch.cuda[0]}.{torch.cuda[1]}")
            if torch.cuda[0]
            else phrase("phantom.cuda.none")
        )
        raise MemdiagError(
            phrase("phantom.cuda", torch=torch.version, python=installed.python, built=built),
            phrase("phantom.cuda.hint"),
        )
    compiler = build.find_compiler("c++")
    libraries = sorted((torch.folder / "lib").glob("*.so"))
    facts = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in libraries]
    sources = sorted(
        path
        for folder in (_HERE, sharing.SOURCES)
        for path in folder.rglob("*")
        if path.suffix in {".py", ".toml", ".cpp", ".h"}
    )
    return build.cached(
        f"cuda{torch.cuda[0]}-{torch.version}",
        [torch.version, *facts, *_installed_toolkit(torch), compiler.version, *sources],
        lambda folder: make(torch, compiler, folder),
    )


def planner(installed: Installed, base: Mapping[str, str]) -> dict[str, str]:
    """Returns the variable that names the installed cuDNN, which plans workspaces without a card; empty without one.

    A value that the user gave stays: another cuDNN may plan for one that is too old to do so itself.
    """
    torch = Torch(Path(installed.folder_of("torch")), installed.version_of("torch"))
    real = [
        path.with_name(path.name.replace("libcudnn.", "libcudnn_graph."))
        for path in torch.toolkit(torch.sonames.get("libcudnn", ""))
    ]
    found = next((path for path in real if path.is_file()), None)
    given = base.get(PLANNER)
    return {PLANNER: given if given is not None else str(found)} if found or given is not None else {}


def make(torch: Torch, compiler: build.Compiler, folder: Path) -> None:
    """Compiles all libraries into ``folder``."""
    real = _installed_toolkit(torch)
    table = [entry for entry in _table() if (name := _soname(entry, torch)) and name not in real]
    flags = [*_FLAGS, *_definitions(torch), "-I", str(_HERE)]
    jobs: dict[Path, Path] = {}
    for entry in table:
        generated = folder / f"{entry['library']}-rest.cpp"
        generated.write_text(_rest(entry, torch), encoding="utf-8")
        jobs[generated] = generated.with_suffix(".o")
        for source in _sources(entry):
            jobs[source] = folder / f"{source.parent.name}-{source.stem}.o"
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda job: compiler.run([*flags, "-c", "-o", job[1], job[0]]), jobs.items()))
    for entry in table:
        objects = [folder / f"{entry['library']}-rest.o", *(jobs[source] for source in _sources(entry))]
        _link(entry, torch, compiler, folder, objects)
    for path in folder.iterdir():
        if path.suffix in {".o", ".cpp", ".map"}:
            path.unlink()
    (folder / "libcuda.so").symlink_to("libcuda.so.1")  # Triton links with it under this name


def _installed_toolkit(torch: Torch) -> list[str]:
    """Returns the names of the libraries for which the real ones of the installed toolkit are used."""
    names = [_soname(entry, torch) for entry in _table() if entry.get("missing")]
    return [name for name in names if name and torch.toolkit(name)]


def _table() -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["library"]
    return table


def _definitions(torch: Torch) -> list[str]:
    major, minor = torch.cuda
    versions = [f"-DPHANTOM_{name.upper()}_VERSION={_number(name, *torch.version_of(name))}" for name in _VERSIONS]
    return [f"-DPHANTOM_CUDA_VERSION={major * 1000 + minor * 10}", *versions]


def _number(library: str, major: int, minor: int, patch: int) -> int:
    """Returns a version as the library itself reports it; before 9, cuDNN had fewer digits for the minor version."""
    return major * (1000 if library == "cudnn" and major < 9 else 10000) + minor * 100 + patch


def _stem(soname: str) -> str:
    return _ADDED.sub("", soname).partition(".so")[0]


def _sources(entry: Mapping[str, Any]) -> list[Path]:
    return sorted({path for pattern in entry["sources"] for path in _HERE.glob(pattern)})


def _soname(entry: Mapping[str, Any], torch: Torch) -> str:
    library: str = entry["library"]
    return _SONAMES.get(library) or torch.sonames.get(library, "")


def _rest(entry: Mapping[str, Any], torch: Torch) -> str:
    """Returns the functions of a library that no source defines; they are weak symbols, so sources override them."""
    belongs = re.compile(entry["names"])
    soname = _soname(entry, torch)
    real = [symbols.read(path).functions for path in torch.toolkit(soname)[:1]]
    names = {
        name
        for offered in [*(library.undefined for library in torch.libraries), *real]
        for name in offered
        if belongs.match(name)
    }
    is_called = re.compile("|".join(entry.get("called", ["(?!)"])))
    lines = ['#include "libraries/calls.h"']
    for name in sorted(names):
        if is_called.fullmatch(name):
            lines.append(f"PHANTOM_CALLED({name})")
        else:
            lines.append(f'PHANTOM_REFUSED("{soname}", {name}, {entry["error"]})')
    return "\n".join(lines) + "\n"


def _link(
    entry: Mapping[str, Any], torch: Torch, compiler: build.Compiler, folder: Path, objects: Sequence[Path]
) -> None:
    soname = _soname(entry, torch)
    arguments: list[str | Path] = [*_FLAGS, "-shared", f"-Wl,-soname,{soname}", "-o", folder / soname, *objects, "-ldl"]
    if soname != _SONAMES["libcuda"]:
        arguments += [f"-L{folder}", f"-l:{_SONAMES['libcuda']}", "-Wl,-rpath,$ORIGIN"]
    if version := torch.symbol_versions.get(soname):
        script = folder / f"{soname}.map"
        script.write_text(f"{version} {{ global: cu*; __cuda*; nccl*; }};\n", encoding="utf-8")
        arguments.append(f"-Wl,--version-script={script}")
    compiler.run(arguments)


def environment(profile: Profile, folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables with which a program finds the simulated runtime in ``folder``.

    No process below can reach a real GPU: that requires libcuda.so.1 and libnvidia-ml.so.1, which are already loaded.
    """
    table = _table()
    there = {_stem(path.name): path for path in sorted(folder.glob("lib*.so.*"))}
    preloads = [str(there[entry["library"]]) for entry in table if entry["library"] in there]
    others = [entry for entry in base.get("LD_PRELOAD", "").replace(" ", ":").split(":") if entry]
    figures = profile.figures
    return {
        **base,
        "LD_PRELOAD": ":".join([*preloads, *others]),
        "LD_LIBRARY_PATH": ":".join([str(folder), *filter(None, base.get("LD_LIBRARY_PATH", "").split(":"))]),
        "TRITON_LIBCUDA_PATH": str(folder),
        # PyTorch would keep the empty kernels of the simulated compiler for later runs on a real device.
        **({"USE_PYTORCH_KERNEL_CACHE": "0"} if "libnvrtc" in there else {}),
        "MEMDIAG_PHANTOM_NAME": profile.product,
        "MEMDIAG_PHANTOM_TOTAL_BYTES": str(profile.total_bytes),
        "MEMDIAG_PHANTOM_CONTEXT_BYTES": str(profile.context_bytes),
        "MEMDIAG_PHANTOM_CAPABILITY": str(figures["capability"]),
        "MEMDIAG_PHANTOM_SMS": str(figures["sms"]),
        "MEMDIAG_PHANTOM_SHARED_MEMORY_OPTIN": str(figures["shared_memory_optin"]),
        "MEMDIAG_PHANTOM_THREADS_PER_SM": str(figures["threads_per_sm"]),
        "MEMDIAG_PHANTOM_NCCL_CHANNELS": str(figures.get("nccl_channels", 24)),
        "MEMDIAG_PHANTOM_SM_CLOCK_KHZ": str(int(figures.get("sm_clock_mhz", 1980)) * 1000),
        "MEMDIAG_PHANTOM_MEMORY_CLOCK_KHZ": str(int(figures.get("memory_clock_mhz", 2619)) * 1000),
        "MEMDIAG_PHANTOM_DEVICES": str(profile.num_devices or "launcher"),
    }
