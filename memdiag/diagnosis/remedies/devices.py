"""Other processes on the device: find them, end them, or use another device."""

from __future__ import annotations

from dataclasses import replace

from memdiag.diagnosis.remedies.model import Plain, Situation, of_backends
from memdiag.diagnosis.remedies.systems import UNSHARED
from memdiag.quoting import file_argument
from memdiag.results.finding import Finding, Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.text import joined
from memdiag.units import GIB, MIB, format_bytes

_MOST_ENDED = 3
_WORTH_ENDING = 64 * MIB
_CONTEXT = (128 * MIB, GIB)  # memory of a process on a device where it only has a context


class _Who:
    """Lists the processes on the device: those of other users or of earlier runs may hold its memory.

    If processes of the same run held the missing bytes, their recordings show more than a list of processes.
    """

    key = "remedies.who"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the command that lists processes, or analyzes a recorded one; None if the backend has none."""
        if (named := _neighbours(situation)) is not None:
            return named
        command = situation.system.processes
        if not command:
            return None
        fix = LazyFix(
            "remedies.who", "code", command, {"backend": situation.backend.upper()}, caveat="oom_shared.who.caveat"
        ).fix()
        return replace(fix, caveat="") if situation.backend in UNSHARED else fix


def _neighbours(situation: Situation) -> Fix | None:
    """Returns the command that shows what the largest recorded process holds; None if it holds too little."""
    large = sorted(
        (each for each in situation.neighbours if each.reserved_bytes >= _WORTH_ENDING),
        key=lambda each: -each.reserved_bytes,
    )
    total = sum(each.reserved_bytes for each in large)
    if not large or total < (situation.short or 0):
        return None
    values = {
        "ranks": joined([str(each.rank) for each in large], ", "),
        "count": len(large),
        "held": format_bytes(total),
    }
    return LazyFix("remedies.neighbours", "code", f"memdiag analyze {file_argument(large[0].trace)}", values).fix()


def with_neighbours_named(findings: tuple[Finding, ...], situation: Situation) -> tuple[Finding, ...]:
    """Returns advice in which recorded processes of the run replace the command that lists processes."""
    named = _neighbours(situation)
    if named is None:
        return findings
    return tuple(
        replace(each, fixes=tuple(named if getattr(fix.title, "key", "") == _Who.key else fix for fix in each.fixes))
        for each in findings
    )


class _End:
    """Ends processes that earlier runs left behind."""

    key = "remedies.end"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the command that ends the largest process; None if no process is known."""
        large = sorted(
            (entry for entry in situation.facts.others if entry[1] >= _WORTH_ENDING), key=lambda entry: -entry[1]
        )[:_MOST_ENDED]
        if not large:
            return None
        total = format_bytes(sum(size for _, size in large))
        line = f"kill {' '.join(str(pid) for pid, _ in large)}"
        return LazyFix("remedies.end", "code", line, {"bytes": total}).fix()


class _AnotherDevice:
    """Runs the program on another device, which may have more free memory."""

    key = "remedies.device"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the variable that chooses devices; None if the backend has none."""
        names = situation.system
        if not names.visible:
            return None
        if names.freest and not situation.on_windows:
            line = f"export {names.visible}={names.freest}"
            return LazyFix("remedies.device.freest", "env", line, when="remedies.device.when").fix()
        line = f"export {names.visible}={0 if situation.device else 1}"
        if names.freest:
            return LazyFix("remedies.device", "env", line).fix()
        command = {"command": names.processes}
        return LazyFix("remedies.device", "env", line, command, when="remedies.device.free.when").fix()


class _OwnDevice:
    """Gives each rank its own device: ranks on one device share its memory."""

    key = "remedies.rank"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the call that gives each rank its device; None for other frameworks."""
        if situation.backend not in {"cuda", "hip", "npu", "xpu", "musa", "mlu"} or not situation.on_torch:
            return None
        return LazyFix("remedies.rank", "code", f'{situation.module}.set_device(int(os.environ["LOCAL_RANK"]))').fix()


class _Contexts:
    """Keeps other ranks off this device.

    Several processes with equal memory, no larger than a context, are ranks that used this device before their own.
    """

    key = "remedies.contexts"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the call that gives each rank its device first; None if no processes look like ranks."""
        module = situation.module
        small = [size for _pid, size in situation.facts.strangers if _CONTEXT[0] <= size <= _CONTEXT[1]]
        if len(small) < 2 or max(small) > 1.05 * min(small) or not module or not situation.on_torch:
            return None
        room = "remedies.contexts.room" if situation.short and sum(small) >= situation.short else ""
        line = f'{module}.set_device(int(os.environ["LOCAL_RANK"]))'
        values = {"count": len(small), "bytes": format_bytes(min(small))}
        return LazyFix("remedies.contexts", "code", line, values, caveat=room).fix()


WHO = _Who()
END = _End()
ANOTHER_DEVICE = _AnotherDevice()
OWN_DEVICE = _OwnDevice()
CONTEXTS = _Contexts()
CONTAINER = Plain(LazyFix("remedies.container", "flag", "--device=/dev/davinci0"), of_backends("npu"))
