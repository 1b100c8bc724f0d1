"""Why the system does not let one process debug another, and what would allow it."""

from __future__ import annotations

from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.watch.target import Target

_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_PTRACE = 19  # CAP_SYS_PTRACE


def refusal(target: Target) -> MemdiagError:
    """Returns the error for a refused attempt to debug a process, with the missing permission."""
    pid = f"{target.pid}"
    tracer = _field(f"/proc/{target.pid}/status", "TracerPid")
    if tracer not in {"", "0"}:
        return MemdiagError(phrase("watch.traced", pid=pid, tracer=tracer), phrase("watch.traced.hint"))
    try:
        scope = _SCOPE.read_text(encoding="ascii").strip()
    except OSError:
        scope = ""
    has_capability = bool(int(_field("/proc/self/status", "CapEff") or "0", 16) >> _PTRACE & 1)
    if scope not in {"", "0"} and not has_capability:
        return MemdiagError(phrase("watch.scope", pid=pid, scope=scope), phrase("watch.scope.hint"))
    return MemdiagError(phrase("watch.refused", pid=pid), phrase("watch.refused.hint"))


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")
