"""The kernel's log after it killed a process to free memory, and the resulting messages of SLURM and others.

A kill is reported in up to four lines: the requester ("python invoked oom-killer"), the choice
("oom-kill:constraint=…"), the kill itself ("Out of memory: Killed process", until 4.19 in two lines, "Kill process … or
sacrifice child" and "Killed process") and the reaper's. They are one message. total-vm is address space, mostly never
touched; anon-rss is the memory that the process really used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from memdiag.oom.dialects.host_memory import FEWER_WORKERS, WATCH, job_memory, of_victim, slurm_memory
from memdiag.oom.dialects.parts import gather, line_start, number, shown, whole_lines
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase
from memdiag.units import KIB

FORMATS = ("oom_killer",)
NAMES = {
    "linux": "Linux",
    "slurm": "Slurm",
    "kubernetes": "Kubernetes",
    "lsf": "LSF",
    "pbs": "PBS",
    "sge": "Grid Engine",
    "docker": "Docker",
    "vertex": "Vertex AI",
}
ANCHORS = (
    "outofmemory:kill",
    "killedprocess",
    "oom-kill",
    "oom_kill",
    "oom_reaper",
    "oomkilled",
    "systemoomencountered",
    "lowonresource:memory",
    "condition:[memorypressure",
    "memorypressure",
    "ranout-of-memory",
    "oomkiller",
    "systemd-oomd",
    "duetomemory",
    "memorylimit",
    ":outofmemory",
    "out_of_me",
    "term_memlimit",
    "vmrss",
    "exceededlimit",
    "hardlimit",
)
WORDS = ("vmrss",)
EXAMPLES = (
    (
        "oom_killer",
        (
            "Memory cgroup out of memory: Killed process 4711 (python) total-vm:20480kB, anon-rss:10240kB, "
            "file-rss:64kB, "
            "shmem-rss:0kB, UID:1000"
        ),
    ),
    ("oom_killer", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=17.batch cgroup."),
    ("oom_killer", "slurmstepd: error: Step 17.0 exceeded memory limit (4196136 > 4194304), being killed"),
)

_NAME = r"(?: \( %s [^)]{0,80} \)\)? )?"
_KILL = pattern(
    r"(?: (?P<memcg>Memory cgroup)? out of memory(?: \([^)]{0,60}\))?: Kill(?:ed)? process {pid:int} "
    + _NAME % "(?P<victim>[^)]{0,40})"
    + r" (?:score \d+ or sacrifice child)?"
    r" | oom-kill:constraint=(?P<constraint>CONSTRAINT_\w+?),nodemask= | (?<!y:) Killed process {killed:int} "
    + _NAME
    % "(?P<victim_killed>[^)]{0,40})"
    + r" (?:,?UID:? \d+ ,)? ,?total-vm"
    r" | invoked oom-killer | oom_reaper:reaped process {reaped:int} )"
)
_CLAUSES = (
    pattern(r"total-vm:{total_vm:bytes}kB"),  # kB in any slot: people put commas into the numbers
    pattern(r"anon-rss:{anon_rss:bytes}kB"),
    pattern(r"task=[^,]{0,60},pid={pid:int}"),
)
_TASK = pattern(r",task=(?P<victim>[^,]{1,40}),pid=")
_LIMIT = pattern(r"memory:usage\d+kB,limit{limit:int}kB,failcnt")
_SLURM_EVENT = pattern(
    r"(?:Detected|Some of your processes may have been killed by the cgroup out-of-memory handler) (?:{events:int}"
    r" (?:oom[-_]kill events?(?:\(s\))?) (?:in (?:StepId=|step) [\w.+-]{1,40}? cgroup)?)?"
)
_SLURM_LIMIT = pattern(
    r"(?:(?:Job|Step|Some step) (?:[\d._+]{1,30})? exceeded"
    r" (?:virtual )?memory limit(?: \({used:int} > {limit:int}\))? |"
    r" Exceeded (?:job|step) memory limit)"
)
_SLURM_TASK = pattern(r"srun: error: [\w.-]{1,80}: tasks?[\d,\[\]-]{1,60}: Out Of Memory")
_STATE = pattern(
    r"State [:=] OUT_OF_MEMORY (?: Reason=OutOfMemory )? | TERM_MEMLIMIT: job killed "
    r"| Run time [\d:.-]{1,20} , OUT_OF_MEMORY"
    r" | (?:(?:Reason|reason) [\"']? [:=] \"?) OOMKilled | OOMKilled [\"']? [:=] [\"']? true "
    r"| ran out-of-memory and exited"
)
# The kubelet frees memory on a node: pods that use more than they requested are evicted first, whatever their limit.
_PRESSURE = pattern(
    r"The node was low on resource: memory (?!_) | The node had condition: \[ (?:\w+,){0,3} MemoryPressure"
    r" | (?:attempting to reclaim|must evict pod\(s\) to reclaim) memory (?!_)"
)
_USING = pattern(
    r"Container [\w./-]{1,100}? was using {used:size}? i?"
    r" (?: , (?:which exceeds its request of | request is) {request:size}? i? )?"
)
# Tables: "kubectl get pods" ("trainer-0   0/1   OOMKilled   3   14m") and sacct, whose columns cut the state
# ("OUT_OF_ME+").
_POD = re.compile(r"(?:[\w.-]{1,120}\s+)?[\w.-]{1,253}\s+\d{1,4}/\d{1,4}\s+(?:Init:)?OOMKilled\s+\d.{0,300}")
_SACCT = re.compile(
    r"\d{1,12}(?:[._+][\w.+\[\]%-]{1,40})?[\s|](?:.{0,400}[\s|])?OUT_OF_ME(?:MORY|MOR?\+|\+)(?:[\s|]+\d.{0,300}|[\s|]*)"
)
_LIMITS = pattern(r"Limits: (?:[\w./-]{1,60}: [\d.]{1,12} [a-zA-Z]{0,2} ){0,4}? memory: {limit:size}")
_LIMITS_REACH = 600
_PRESSURE_REACH = 400
_KUBELET = pattern(r"System OOM encountered, victim process: [^,]{1,80}, pid: {pid:int}")
_SGE = pattern(
    r"exceed(?:s|ed) job hard limit [\"']? (?:h_vmem|h_rss|s_vmem) [\"']?"
    r" (?:of queue .{1,120}? \( {used:size} > limit: {limit:size} \))?"
)
_UNIT = pattern(r"A process of this unit has been killed by the OOM killer")
# The name of the program before it may be lost with the prefix of the system's log.
_OOMD = pattern(
    r"(?:systemd-oomd (?:\[\d+\])? :)? (?:Killed|Marked) /[^\s]{1,300}? \. (?:scope|service|slice) (?:for killing)?"
    r" due to memory (?:used \( {allocated:bytes} \) / total \( {total:bytes} \) | pressure for)"
    r" | systemd-oomd (?:\[\d+\])? : Killed [^\s]{1,300}? due to memory"
)
_EARLY = pattern(r"sending SIG(?:TERM|KILL) to process {pid:int} [^:]{0,80}: (?:badness|oom_score) \d+")
_PBS = pattern(r"PBS: job killed: (?:v?mem|pmem) {used:int}kb exceeded limit {limit:int}kb")
_SHELL = re.compile(r"(\d{1,8})killed", re.IGNORECASE)
_WHOSE = (
    (r"state|runtime", "slurm"),
    (r"oomkilled[\"']?[:=][\"']?true", "docker"),
    (r"oomkilled", "kubernetes"),
    (r"ranout-of", "vertex"),
    (r"", "lsf"),
)

_CONTAINER = LazyFix(
    "oom_kernel.container", "flag", "docker run --memory=64g ...  # Kubernetes: resources.limits.memory"
)

_REQUEST = LazyFix("oom_kernel.request", "code", 'resources: {requests: {memory: "64Gi"}, limits: {memory: "64Gi"}}')
_NODE = LazyFix("oom_kernel.node", "flag", "kubectl top pods -A --sort-by=memory  # and: kubectl describe node NAME")

_SERVICE = LazyFix("oom_kernel.service", "flag", "systemctl set-property --runtime NAME.service MemoryMax=64G")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    yield from _kernel(text)
    events = list(_SLURM_EVENT.finditer(text.text))
    for match, following in zip(events, [*events, None][1:], strict=True):
        if match["events__int"] is None and not match[0].lower().startswith("some"):
            continue
        if following is not None or match["events__int"] is not None or len(events) == 1:
            yield _slurm_event(text, match)
    yield from _limits(text)
    yield from _tables(text)
    for head, framework, why in (
        (_SLURM_TASK, "slurm", "slurm"),
        (_STATE, "", "state"),
        (_UNIT, "linux", "unit"),
        (_OOMD, "linux", "oomd"),
        (_EARLY, "linux", "earlyoom"),
        (_KUBELET, "kubernetes", "kubelet"),
    ):
        for match in head.finditer(text.text):
            name = framework or next(name for words, name in _WHOSE if re.search(words, match[0], re.IGNORECASE))
            fixes = (slurm_memory(), WATCH) if name == "slurm" else (_CONTAINER, WATCH)
            if name == "lsf":
                fixes = (job_memory(name), WATCH)
            if name == "linux":
                fixes = (FEWER_WORKERS, WATCH) if head is _EARLY else (_SERVICE, WATCH)
            fields, end = take(match), match.end()
            if name == "kubernetes":
                more, end = gather(text, end, end + _LIMITS_REACH, (_LIMITS,))
                fields |= more
            yield _found(match.start(), end, name, fields, phrase(f"oom_kernel.why.{why}"), ("limit",), fixes)
    yield from _pressure(text)
    for match in _SGE.finditer(text.text):
        given = take(match)
        fields = {
            name: given[key]
            for name, key in (("allocated_bytes", "used_bytes"), ("limit_bytes", "limit_bytes"))
            if key in given
        }
        fixes = (job_memory("sge", number(fields, "allocated_bytes"), number(fields, "limit_bytes")), WATCH)
        yield _found(match.start(), match.end(), "sge", fields, phrase("oom_kernel.why.h_vmem"), ("limit",), fixes)


def _limits(text: Squeezed) -> Iterator[Found]:
    """Yields limits of a job that SLURM or PBS enforces itself."""
    for head in (_SLURM_LIMIT, _PBS):
        for match in head.finditer(text.text):
            given = take(match)
            used, limit = number(given, "used"), number(given, "limit")
            fields: Fields = {}
            if used is not None and limit is not None:
                fields = {"allocated_bytes": used * KIB, "limit_bytes": limit * KIB}
            why = phrase("oom_kernel.why.job")
            if used and limit:
                why = phrase("oom_kernel.why.over", used=shown(used * KIB), limit=shown(limit * KIB))
            framework = "slurm" if head is _SLURM_LIMIT else "pbs"
            request = slurm_memory if framework == "slurm" else partial(job_memory, framework)
            fixes = (request(used * KIB if used else None, limit * KIB if limit else None), FEWER_WORKERS)
            yield _found(match.start(), match.end(), framework, fields, why, ("limit",), fixes)


def _pressure(text: Squeezed) -> Iterator[Found]:
    """Yields evictions by the kubelet: the whole node ran short of memory, not one container."""
    end = -1
    for match in _PRESSURE.finditer(text.text):
        if match.start() <= end + _PRESSURE_REACH and end >= 0:
            end = match.end()
            continue
        using = _USING.search(text.text, match.end(), match.end() + _PRESSURE_REACH)
        end = using.end() if using else match.end()
        why = phrase("oom_kernel.why.evicted")
        more = (phrase("oom_kernel.why.evicted.more"),)
        yield _found(match.start(), end, "kubernetes", {}, why, ("other_process",), (_REQUEST, _NODE, WATCH), more)


def _tables(text: Squeezed) -> Iterator[Found]:
    """Yields rows of job and pod tables; a job has a row for each step, all of which are one failure."""
    for start, end, _line in whole_lines(text, _POD):
        why = phrase("oom_kernel.why.pod")
        yield _found(start, end, "kubernetes", {}, why, ("limit",), (_CONTAINER, WATCH))
    last = ""
    for start, end, line in whole_lines(text, _SACCT):
        job = re.split(r"[._+\s|]", line[0], maxsplit=1)[0]
        if job != last:
            yield _found(start, end, "slurm", {}, phrase("oom_kernel.why.slurm"), ("limit",), (slurm_memory(), WATCH))
        last = job


def _kernel(text: Squeezed) -> Iterator[Found]:
    """Gathers the lines of one kill, as long as none contradicts the process named before."""
    group: list[re.Match[str]] = []
    for match in [*_KILL.finditer(text.text), None]:
        if match and (
            not group or (len(group) < 8 and match.start() - group[-1].end() < 6000 and _same(text, group, match))
        ):
            group.append(match)
            continue
        if group:
            yield _kill(text, group, match.start() if match else len(text.text))
        group = [match] if match else []


def _pid(text: Squeezed, match: re.Match[str]) -> int | None:
    printed = match["pid__int"] or match["killed__int"] or match["reaped__int"]
    if printed:
        return int(printed[:18])
    if match["constraint"]:
        return number(gather(text, match.end(), match.end() + 1500, _CLAUSES[2:])[0], "pid")
    return None


def _same(text: Squeezed, group: list[re.Match[str]], match: re.Match[str]) -> bool:
    if "invoked" in match[0].lower():
        return False
    before = {_pid(text, earlier) for earlier in group} - {None}
    now = _pid(text, match)
    # "sacrifice child" may kill a child instead of the named process.
    return not before or now in before or (match["killed__int"] is not None and "sacrifice" in group[-1][0].lower())


def _kill(text: Squeezed, group: list[re.Match[str]], stop: int) -> Found:
    start, last = group[0].start(), group[-1]
    stop = min(stop, last.end() + 1500)
    given, end = gather(text, start, stop, _CLAUSES)
    killed = [match["killed__int"] or match["pid__int"] for match in group if match["killed__int"] or match["pid__int"]]
    fields: Fields = {}
    pid = (
        int(killed[-1])
        if killed
        else number(given, "pid") or next((pid for pid in (_pid(text, match) for match in group) if pid), None)
    )
    if pid is not None:
        fields["pid"] = pid
    for name in ("total_vm", "anon_rss"):
        value = number(given, f"{name}_bytes")
        if value is not None:
            fields[f"{name}_bytes"] = value * KIB
    in_cgroup = any(match["memcg"] or (match["constraint"] or "").upper().endswith("MEMCG") for match in group)
    limit = number(gather(text, max(start - 4000, 0), stop, (_LIMIT,))[0], "limit") if in_cgroup else None
    if limit is not None and limit * KIB < 1 << 60:
        fields["limit_bytes"] = limit * KIB
    held = number(fields, "anon_rss_bytes")
    names = [match["victim_killed"] or match["victim"] for match in group if match["victim_killed"] or match["victim"]]
    task = _TASK.search(text.text, start, stop)
    victim = names[-1] if names else task["victim"] if task else ""
    why = phrase("oom_kernel.why.killed.name", name=victim) if victim else phrase("oom_kernel.why.killed")
    if held:
        both = phrase("oom_kernel.why.killed.both", name=victim, held=shown(held))
        why = both if victim else phrase("oom_kernel.why.killed.held", held=shown(held))
    where = phrase("oom_kernel.why.cgroup") if in_cgroup else phrase("oom_kernel.why.whole")
    fixes = _of_group(text.text[max(start - 2000, 0) : stop], held, victim) if in_cgroup else of_victim(victim)
    alternatives: tuple[Cause, ...] = ("limit",) if in_cgroup else ()
    return _found(start, max(end, last.end()), "linux", fields, why, alternatives, fixes, (where,))


def _of_group(around: str, held: int | None, victim: str) -> tuple[LazyFix, ...]:
    """Returns how to raise the limit of a control group, by its name.

    Examples are "/slurm/uid_1/job_2", "docker-3f….scope" and "user-1000.slice".
    """
    names, less = around.lower(), of_victim(victim)[0]
    if "slurm" in names or "/job_" in names:
        return (slurm_memory(held), less)
    if any(word in names for word in ("docker", "kubepods", "containerd", "libpod", "crio-", "podman")):
        return (_CONTAINER, less)
    if ".slice" in names or ".service" in names:
        return (_SERVICE, less)
    return (_CONTAINER, slurm_memory(held), less)


def _slurm_event(text: Squeezed, match: re.Match[str]) -> Found:
    """Reads SLURM's line, with the shell's line about the process if it directly precedes it.

    The shell's line has the form "line 28: 8156 Killed".
    """
    start, fields = match.start(), Fields()
    for shell in _SHELL.finditer(text.text, max(start - 1500, 0), start):
        line = text.line_at(shell.start()).text
        printed = re.search(r"(\d{1,8})\s+killed\b", line, re.IGNORECASE)
        if printed:
            start, fields = line_start(text, shell.start()), {"pid": int(printed[1])}
    why = phrase("oom_kernel.why.event")
    return _found(start, match.end(), "slurm", fields, why, ("limit",), (slurm_memory(), FEWER_WORKERS))


def _found(
    start: int,
    end: int,
    framework: str,
    fields: Fields,
    why: str,
    others: tuple[Cause, ...],
    fixes: tuple[LazyFix, ...],
    more: tuple[str, ...] = (),
) -> Found:
    return Found(
        start, end, "oom_killer", framework, "cpu", fields, Judgement("host", "high", others, (why, *more)), fixes
    )
