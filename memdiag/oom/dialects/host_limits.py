"""Limits for the host memory of a job or container, enforced by HTCondor, Cloud Run or Amazon's container services.

Their message has the limit, or states only that the program exceeded it. The program itself prints nothing.
"""

# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.dialects.host_memory import WATCH, job_memory
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import Texts, phrase_of
from memdiag.units import GIB, MIB

FORMATS = ("host_limit",)
NAMES = {"htcondor": "HTCondor", "cloud-run": "Cloud Run", "ecs": "Amazon ECS"}
ANCHORS = ("overcgroupmemorylimit", "anout-of-memoryevent", "duetomemoryusage", "exceededwith")
EXAMPLES = (
    (
        "host_limit",
        (
            "Job has gone over cgroup memory limit of 4096 megabytes. Last measured usage: 4100 megabytes.  "
            "Consider resubmitting with a higher request_memory."
        ),
    ),
    ("host_limit", "Memory limit of 1024 MiB exceeded with 1041 MiB used."),
    ("host_limit", "OutOfMemoryError: Container killed due to memory usage"),
)
TEXTS: Texts = {
    "why.over": {
        "en": "The job used {used} of host memory; its limit is {limit}.",
        "zh": "作业使用了 {used} 主机内存；其上限为 {limit}。",
    },
    "why.sampled": {
        "en": "The job reached its limit of {limit}. The last measured usage, {used}, is older than the peak.",
        "zh": "作业达到了其上限 {limit}。{used} 是峰值之前的实测用量。",
    },
    "why.limit": {"en": "The job reached its limit of {limit}.", "zh": "作业达到了其上限 {limit}。"},
    "why.reached": {
        "en": "The job or container reached its memory limit.",
        "zh": "作业或容器达到了其内存上限。",
    },
    "service": {"en": "Raise the memory limit of the service", "zh": "提高服务的内存上限"},
    "service.when": {"en": "Cloud Run", "zh": "Cloud Run"},
    "service.caveat": {
        "en": "files that the program writes are in memory too, and more memory may need more CPUs",
        "zh": "程序写入的文件也占用内存；更大的内存可能需要更多 CPU",
    },
    "task": {
        "en": "Raise the memory of the container in the job or task definition",
        "zh": "在作业或任务定义中提高容器的内存",
    },
    "task.when": {
        "en": "AWS Batch; in Amazon ECS: memory of the container definition",
        "zh": "AWS Batch；Amazon ECS 中为容器定义的 memory",
    },
    "task.caveat": {
        "en": "the instance needs more memory than the container: the system keeps a part of it",
        "zh": "实例的内存必须大于容器的内存：系统会占用一部分",
    },
}

_CONDOR = pattern(
    r"Job has (?: gone over cgroup memory limit of {limit:int} megabytes .?"
    r" (?:(?:Last measured|Peak) usage : {used:int} megabytes)? | encountered an out-of-memory event)"
)
_CLOUD_RUN = pattern(r"Memory limit of {limit:size} exceeded with {used:size} used")
_CONTAINER = pattern(r"OutOfMemoryError : Container killed due to memory usage")

_SERVICE = "gcloud run services update SERVICE --memory=%dGi"
_TASK = LazyFix(
    "task",
    "flag",
    "aws batch submit-job --container-overrides 'resourceRequirements=[{type=MEMORY,value=65536}]' ...",
    texts=TEXTS,
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _CONDOR.finditer(text.text):
        given = take(match)
        used, limit = (None if (count := number(given, name)) is None else count * MIB for name in ("used", "limit"))
        # HTCondor measures the usage from time to time: less than the limit is not the peak.
        peak = used if used is not None and limit is not None and used > limit else None
        yield _found(match, "htcondor", used, limit, job_memory("htcondor", peak, limit))
    for match in _CLOUD_RUN.finditer(text.text):
        given = take(match)
        used, limit = number(given, "used_bytes"), number(given, "limit_bytes")
        gib = -(-max(used or 0, limit or 0) * 5 // 4 // GIB)
        yield _found(match, "cloud-run", used, limit, LazyFix("service", "flag", _SERVICE % gib, texts=TEXTS))
    for match in _CONTAINER.finditer(text.text):
        yield _found(match, "ecs", None, None, _TASK)


def _found(match: re.Match[str], framework: str, used: int | None, limit: int | None, fix: LazyFix) -> Found:
    fields: Fields = {
        name: size for name, size in (("allocated_bytes", used), ("limit_bytes", limit)) if size is not None
    }
    why = phrase_of(TEXTS, "why.reached")
    if limit is not None and used is not None:
        sizes = {"used": shown(used), "limit": shown(limit)}
        over, sampled = phrase_of(TEXTS, "why.over", **sizes), phrase_of(TEXTS, "why.sampled", **sizes)
        why = over if used >= limit else sampled
    elif limit is not None:
        why = phrase_of(TEXTS, "why.limit", limit=shown(limit))
    judgement = Judgement("host", "high", ("limit",), (why,))
    return Found(match.start(), match.end(), "host_limit", framework, "cpu", fields, judgement, (fix, WATCH))
