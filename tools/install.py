"""Installs packages for `make demo` and `make test`: install.py packages SPEC, torch SPEC, torch_npu FOLDER.

One version of torch has two builds, and the package index decides which of them pip installs. torch_npu works with the
CPU build only. The CUDA build requires 3.5 GB of NVIDIA's toolkit, which phantom devices replace. This script installs
that build without the toolkit and puts placeholders in its place.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

RETRY_AFTER_S = 5
_TOOLKIT = re.compile(r"(nvidia|cuda|triton)\b")
_WORTH_LOGGING = re.compile(r" *(?:(?:Downloading|Using cached) .*\.whl \(|Installing )")
_CUDA = re.compile(r"^cuda(?:: *[^=\n]*)? *= *['\"]", re.MULTILINE)


def say(text: str) -> None:
    """Prints a line of progress."""
    print(text, file=sys.stderr, flush=True)


def pip(*words: str) -> tuple[int, str]:
    """Runs pip in this Python, a second time if it fails, since networks hiccup; returns its status and its stderr.

    On a terminal pip shows its own progress; in a log file only downloads are listed. Callers show stderr only if pip
    failed, because pip also complains there about the missing toolkit.
    """
    command = [sys.executable, "-m", "pip", *words]
    is_terminal = sys.stderr.isatty()
    for is_last in (False, True):
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(
                command,
                stdout=sys.stderr if is_terminal else subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            ) as process:
                for line in process.stdout or ():
                    if _WORTH_LOGGING.match(line):
                        say(line.rstrip())
            errors.seek(0)
            said = errors.read()
        if process.returncode == 0 or is_last:
            break
        say(f"pip failed; trying once more in {RETRY_AFTER_S} seconds")
        time.sleep(RETRY_AFTER_S)
    return process.returncode, said


def install(*words: str) -> None:
    """Runs pip install; ends the program with pip's words if it fails."""
    status, said = pip("install", "--disable-pip-version-check", "--no-input", *words)
    if status:
        sys.exit(said.strip() or "error: pip failed")


def torch_version() -> str:
    """Returns the version of torch; empty: it is not installed."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def is_cuda_build() -> bool:
    """Returns whether the installed torch was built for CUDA. Reads its files only: it may not be importable."""
    try:
        text = (Path(sysconfig.get_path("platlib")) / "torch" / "version.py").read_text(encoding="utf-8")
    except OSError:
        return False
    return bool(_CUDA.search(text))


def without_toolkit(requirements: Sequence[str]) -> list[str]:
    """Returns the requirements of torch that are not extras, NVIDIA's toolkit or Triton."""
    return [text for text in requirements if not _TOOLKIT.match(text) and "extra ==" not in text]


def why_no_import() -> str:
    """Returns the last line of the error of `import torch`; empty: it works."""
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it was killed"])[-1]


def install_torch(spec: str) -> None:
    """Installs torch, without the toolkit if it is a build for CUDA and can do without."""
    if torch_version() and not why_no_import():
        return
    say(f"installing {spec}: a build for the CPU takes 200 MB to download, a build for CUDA 530 MB")
    install("--no-deps", spec)
    if not is_cuda_build():
        install(spec)
        return
    install(*without_toolkit(metadata.requires("torch") or []))
    say("torch is a build for CUDA: compiling placeholders for NVIDIA's toolkit (about a minute), which saves 3.5 GB")
    done = subprocess.run(
        [sys.executable, "-m", "memdiag.phantom.cuda.placeholders", sys.executable],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    why = done.stderr.strip().rpartition("\n")[2] if done.returncode else why_no_import()
    if why:
        say(f"note: no placeholders: {why}")
        say("installing NVIDIA's toolkit, which torch then needs: 3.5 GB on disk")
        install(spec)


def install_torch_npu(folder: Path) -> None:
    """Makes an environment that sees this one and has a matching torch_npu; else writes the reason to FOLDER/why."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    version, _, _ = torch_version().partition("+")
    why = "torch is not installed in .venv" if not version else ""
    if is_cuda_build():
        why = f"torch {torch_version()} is a build for CUDA, and torch_npu cannot be imported beside it"
    why = why or _install_npu(folder, version)
    if why:
        shutil.rmtree(folder / "bin", ignore_errors=True)
        (folder / "why").write_text(why + "\n", encoding="utf-8")
        say(f"note: no torch_npu: {why}")
    else:
        (folder / ".torch_npu").touch()


def _install_npu(folder: Path, version: str) -> str:
    say(f"installing torch_npu=={version} into {folder}: 50 MB to download")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    (packages / "venv.pth").write_text(
        os.path.relpath(sysconfig.get_path("platlib"), packages) + "\n", encoding="utf-8"
    )
    python = str(folder / "bin" / "python")
    words = ["install", "--disable-pip-version-check", "--no-input", "--no-deps", f"torch_npu=={version}", "pyyaml"]
    status, said = pip("--python", python, *words)
    errors = (line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR"))
    return next(errors, "pip failed") if status else ""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["packages", "torch", "torch_npu"])
    parser.add_argument(
        "argument",
        help="a folder with its extras, a requirement such as torch==2.13.0, or the folder of an environment",
    )
    args = parser.parse_args()
    if args.what == "packages":
        say(f"installing {args.argument}")
        install("--editable", args.argument)
    elif args.what == "torch":
        install_torch(args.argument)
    else:
        install_torch_npu(Path(args.argument))


if __name__ == "__main__":
    main()
