"""gdb, for Python before 3.14: it schedules a call that the main thread makes when it next runs Python code.

gdb stops the process at an arbitrary instruction, perhaps inside malloc, so it calls only two functions there that
allocate nothing: mmap for the text, and Py_AddPendingCall. The process stands still for a few tenths of a second.
"""

from __future__ import annotations

import shutil
import subprocess

from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.watch.door import Door
from memdiag.watch.target import Target

from .permission import refusal

NAME = "gdb"
_REFUSED = ("ptrace: Operation not permitted", "Could not attach", "ptrace: Permission denied")
_STOP_SECONDS = 5.0
_PROBE_SECONDS = 5.0
_QUIET = (
    "gdb",
    "-nx",
    "-nh",
    "-batch",
    "--readnever",
    "-iex",
    "set auto-load off",
    "-iex",
    "set debuginfod enabled off",
)


def can_enter(target: Target) -> bool:  # noqa: ARG001 - as of every mechanism
    """Returns whether gdb is installed."""
    return shutil.which("gdb") is not None


def enter(target: Target, door: Door) -> None:
    """Lets the process run the file of the door.

    Raises:
        MemdiagError: gdb may not attach to it, does not find Python in it, or cannot write the processor's registers.
    """
    if not can_write_registers():
        raise MemdiagError(phrase("watch.gdb.registers"), phrase("watch.gdb.registers.hint"))
    said = _run(target, door)
    if any(words in said for words in _REFUSED):
        raise refusal(target)
    if "memdiag: scheduled 0" not in said:
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith(("[", "warning:"))]
        raise MemdiagError(
            phrase("watch.gdb", pid=f"{target.pid}", error=(lines or ["?"])[-1]), phrase("watch.gdb.hint")
        )


def can_write_registers() -> bool:
    """Returns whether gdb can write all registers of this processor, tried in a process of its own.

    A gdb that is older than the processor (AMX and gdb 13, for example) writes only some of them. The call then fails,
    and a system call that the program waits in ends with an error.
    """
    tried = [*_QUIET, "-ex", "starti", "-ex", "set var $xmm0.v4_int32[0] = 1", "-ex", "kill", "/bin/sh"]
    try:
        done = subprocess.run(  # noqa: S603
            tried,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return "extended state" not in done.stdout


def commands(target: Target, code: str) -> list[str]:
    """Returns gdb's commands that schedule Python code in a process; the code has no quotes but single ones."""
    size = len(code) + 1
    return [
        "set unwindonsignal on",
        "set scheduler-locking on",
        *(["sharedlibrary libpython"] if target.has_own_library else []),
        "sharedlibrary libc",
        "set $text = ((void *(*)(void *, unsigned long, int, int, int, long)) mmap)(0, 4096, 3, 0x22, -1, 0)",
        f'set {{char[{size}]}} $text = "{code}"',
        "set $run = (void *) PyRun_SimpleString",
        'printf "memdiag: scheduled %d\\n", ((int (*)(void *, void *)) Py_AddPendingCall)($run, $text)',
        "detach",
    ]


def code_of(door: Door) -> str:
    r"""Returns the code that runs the file of a door, with line ends as gdb reads them (``\n``).

    It binds no name, and it never fails: a pending call that fails without an exception ends the program.
    """
    path = str(door.script)
    return (
        f"try:\\n exec(compile(open('{path}').read(), 'memdiag', 'exec'), {{'__name__': 'memdiag_boot'}})\\n"
        "except BaseException: pass\\n"
    )


def _run(target: Target, door: Door) -> str:
    command = [*_QUIET, "-iex", "set auto-solib-add off", "-p", str(target.pid)]
    for line in commands(target, code_of(door)):
        command += ["-ex", line]
    gdb = subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        return gdb.communicate(timeout=door.seconds)[0]
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        gdb.send_signal(2)  # it restores the registers of the process and detaches
        try:
            gdb.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            gdb.kill()
            gdb.communicate()
        if isinstance(error, KeyboardInterrupt):
            raise
        raise MemdiagError(
            phrase("watch.gdb.slow", pid=f"{target.pid}", seconds=f"{door.seconds:.0f}"), phrase("watch.gdb.slow.hint")
        ) from None
