"""Starts the program to record from memdiag's own process, as if the shell had started it.

The program keeps stdin, stdout, stderr, working directory, terminal and process group. memdiag is between it and its
caller, so three things must be passed on: signals that reach only memdiag, stopping and continuing (so that ctrl-Z
stops the whole job), and the exit status. memdiag waits for signals instead of handling them, so that no signal is lost
or interrupts memdiag. Signals from a terminal go to the whole process group, which includes the program, and are not
sent again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from memdiag.errors import MemdiagError
from memdiag.text import phrase

from . import cgroup
from . import config as configuration

NOT_FOUND, NOT_RUNNABLE = 127, 126  # exit codes of a shell

_FROM_TERMINAL = 0x80  # si_code SI_KERNEL: not from kill()
_PASSED_ON = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH", "TSTP", "TTIN", "TTOU", "CONT")
_JOB_STOPS = tuple(getattr(signal, name) for name in ("SIGTSTP", "SIGTTIN", "SIGTTOU") if hasattr(signal, name))
_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
# vLLM kills its workers 5 s after it has asked them to end, unless this variable gives them more time: their last files
# would be missing. For its engine process see forked.give_time.
_PATIENT = {"VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "120"}


@dataclass
class ProgramEnd:
    """How the program ended.

    Attributes:
        status: Its exit status, or minus the number of the signal that killed it.
        seconds: How long it ran.
        signals: Signals it received while it ran, from memdiag or from the terminal.
        host_kills: Processes that the kernel killed meanwhile at the memory limit of the cgroup.
        host_limit_bytes: This limit; None: there is none.
    """

    status: int
    seconds: float
    signals: list[int] = field(default_factory=list)
    host_kills: int = 0
    host_limit_bytes: int | None = None

    @property
    def exit_code(self) -> int:
        """The status as shells count it: 128 plus the signal number."""
        return self.status if self.status >= 0 else 128 - self.status


def environment_for(config: configuration.Config, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment in which every Python process loads the recorder.

    In a nested ``memdiag record``, the inner one replaces the outer one's settings for the processes it starts.
    """
    others = [
        entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry and os.path.abspath(entry) != _SITE
    ]
    if not base.get("PYTHONPATH"):
        others = []
    return {
        **_PATIENT,
        **base,
        "PYTHONPATH": os.pathsep.join([_SITE, *others]),
        configuration.VARIABLE: config.as_text(),
    }


def run(command: Sequence[str], environment: Mapping[str, str]) -> ProgramEnd:
    """Runs a command to its end.

    Raises:
        MemdiagError: It cannot be started; the exit code is the shell's for that.
    """
    began = time.monotonic()
    if os.name != "posix":
        done = subprocess.run(list(command), env=dict(environment), check=False)  # noqa: S603 - the user's own command
        return ProgramEnd(done.returncode, time.monotonic() - began)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # otherwise its status would be discarded
    watched = {signal.SIGCHLD, *_not_ignored()}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    container = cgroup.find()
    kills = cgroup.kills_in(container) if container else 0
    try:
        process = _start(command, environment, _preparation(before))
        ended = ProgramEnd(0, 0.0)
        ended.status = process.returncode = _wait(process.pid, watched, ended.signals)
        ended.seconds = time.monotonic() - began
        if container is not None:
            ended.host_kills = cgroup.kills_in(container) - kills
            ended.host_limit_bytes = cgroup.limit_of(container)
        return ended
    finally:
        if hasattr(signal, "sigtimedwait"):
            while signal.sigtimedwait(watched, 0) is not None:
                pass  # a signal for the program that came too late, and is not for memdiag
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_as(ended: ProgramEnd) -> int:
    """Ends this process with the signal that ended the program; returns the exit status if there was none."""
    if ended.status < 0:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        with contextlib.suppress(ImportError, OSError, ValueError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's core file must not be overwritten by ours
        number = -ended.status
        with contextlib.suppress(OSError, ValueError):
            if number not in {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            os.kill(os.getpid(), number)
    return ended.exit_code


def _not_ignored() -> set[signal.Signals]:
    """Returns the signals to pass on.

    An ignored signal stays ignored (nohup): blocking it would deliver it after all.
    """
    named = (getattr(signal, "SIG" + name, None) for name in _PASSED_ON)
    return {number for number in named if number is not None and signal.getsignal(number) is not signal.SIG_IGN}


def _preparation(mask: set[signal.Signals | int]) -> Callable[[], None]:
    """Returns the function that the child runs before it becomes the program."""
    prctl = None
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        if prctl is not None:
            prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG: a kill -9 of memdiag is meant for the program
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def _start(
    command: Sequence[str], environment: Mapping[str, str], prepare: Callable[[], None]
) -> subprocess.Popen[bytes]:
    name = command[0]
    try:
        return _popen(command, environment, prepare)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without #!: shells run it themselves
            path = name if os.sep in name else shutil.which(name, path=environment.get("PATH")) or name
            return _popen(["/bin/sh", path, *command[1:]], environment, prepare)
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            if os.sep in name and os.path.exists(name):
                raise MemdiagError(
                    phrase("record.interpreter", name=name), phrase("record.interpreter.hint"), NOT_RUNNABLE
                ) from None
            hint = (
                phrase("record.not-found.python", name=name)
                if name.endswith(".py")
                else phrase("record.not-found.hint")
            )
            raise MemdiagError(phrase("record.not-found", name=name), hint, NOT_FOUND) from None
        hint = phrase("record.not-runnable.mode") if error.errno == errno.EACCES else phrase("record.not-runnable.hint")
        why = str(error.strerror or error)
        raise MemdiagError(phrase("record.not-runnable", name=name, error=why), hint, NOT_RUNNABLE) from None


def _popen(
    command: Sequence[str], environment: Mapping[str, str], prepare: Callable[[], None]
) -> subprocess.Popen[bytes]:
    # close_fds=False: file descriptors other than 0, 1 and 2 from the shell (make's job server, <(…)) belong to the
    # program.
    return subprocess.Popen(  # noqa: S603
        list(command),
        env=dict(environment),
        close_fds=False,
        preexec_fn=prepare,  # noqa: PLW1509
    )


def _wait(pid: int, watched: set[signal.Signals], sent: list[int]) -> int:
    """Waits for the program, and passes on signals that arrive. Returns its status as Python counts it."""
    while True:
        changed, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if changed and os.WIFSTOPPED(status):
            # ctrl-Z: the shell must see that its job stopped, and it sees only memdiag.
            if os.WSTOPSIG(status) in _JOB_STOPS:
                os.kill(os.getpid(), signal.SIGSTOP)
            continue
        if changed:
            return os.waitstatus_to_exitcode(status)
        number, code = _next(watched)
        if number == signal.SIGCHLD:
            continue
        sent.append(number)
        if code != _FROM_TERMINAL:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _next(watched: set[signal.Signals]) -> tuple[int, int]:
    """Waits for a signal; returns its number and origin."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(watched)
        return info.si_signo, info.si_code
    # macOS does not provide the origin: terminal signals have also been sent to the program.
    number = signal.sigwait(watched)
    typed = {"SIGINT", "SIGQUIT", "SIGTSTP", "SIGWINCH", "SIGTTIN", "SIGTTOU"}
    return number, _FROM_TERMINAL if signal.Signals(
        number
    ).name in typed and sys.stdin is not None and sys.stdin.isatty() else 0
