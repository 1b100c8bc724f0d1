from __future__ import annotations

import pytest
from hypothesis import strategies as st

from memdiag.oom.read import read_text
from tests.oom.message_forms import KIB, Form, Slot, integer
from tests.oom.single import commands, single


def _kb(name):
    return Slot(f"{name}_bytes", st.integers(0, 1 << 34), "{}kB".format, lambda _text, value: value * KIB)


_SIZES = {"pid": integer("pid", 1), "vm": _kb("total_vm"), "rss": _kb("anon_rss")}
FORMS = [
    Form(
        "oom_killer",
        (
            "Out of memory: Killed process {pid} (python3) total-vm:{vm}, anon-rss:{rss}, file-rss:64kB, "
            "shmem-rss:0kB, UID:1000"
        ),
        _SIZES,
    ),
    Form(
        "oom_killer",
        "Memory cgroup out of memory: Killed process {pid} (python) total-vm:{vm}, anon-rss:{rss}, file-rss:64kB",
        _SIZES,
    ),
    Form(
        "oom_killer",
        (
            "Out of memory: Kill process {pid} (python) score 974 or sacrifice child\nKilled process {pid} (python) "
            "total-vm:{vm}, anon-rss:{rss}, file-rss:4kB"
        ),
        _SIZES,
    ),
    Form(
        "oom_killer",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,"
        "task=python,pid={pid},uid=1000\n"
        "Out of memory: Killed process {pid} (python) total-vm:{vm}, anon-rss:{rss}, file-rss:4kB\n"
        "oom_reaper: reaped process {pid} (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        _SIZES,
    ),
]


def test_the_killed_child_is_reported_instead_of_its_parent():
    message = single(
        "Out of memory: Kill process 10 (python) score 974 or sacrifice child\nKilled process 11 (python) "
        "total-vm:30kB, anon-rss:20kB"
    )
    assert message.fields == {"pid": 11, "total_vm_bytes": 30 * KIB, "anon_rss_bytes": 20 * KIB}


def test_two_kills_are_two_messages():
    text = "\n".join(f"Out of memory: Killed process {pid} (python) total-vm:{pid}kB, anon-rss:5kB" for pid in (10, 11))
    assert [message.fields["pid"] for message in read_text(text).messages] == [10, 11]


def test_a_cgroup_that_is_full_may_be_a_limit():
    message = single(
        "memory: usage 2097152kB, limit 2097152kB, failcnt 46\n"
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/a,task_memcg=/a,"
        "task=python,pid=4711,uid=0\n"
        "Memory cgroup out of memory: Killed process 4711 (python) total-vm:30kB, anon-rss:20kB"
    )
    assert message.fields["limit_bytes"] == 2 << 30
    assert (message.judgement.verdict, message.judgement.alternatives) == ("host", ("limit",))


@pytest.mark.parametrize(
    "event",
    [
        "1 oom-kill event(s) in StepId=17.batch cgroup.",
        "3 oom-kill event(s) in step 17.0 cgroup.",
        "2 oom_kill events in StepId=17.0.",
    ],
)
def test_kill_events_of_slurm_are_recognised(event):
    message = single(
        f"slurmstepd: error: Detected {event} Some of your processes may have been killed by the cgroup out-of-memory "
        "handler."
    )
    assert (message.framework, message.judgement.verdict) == ("slurm", "host")


def test_the_line_of_the_shell_is_merged_with_that_of_slurm():
    message = single(
        "script: line 28:  8156 Killed                  python3 main.py\nslurmstepd: error: Detected 1 oom-kill "
        "event(s) in StepId=1.batch cgroup."
    )
    assert (message.dialect, message.fields) == ("oom_killer", {"pid": 8156})


def test_a_slurm_limit_advises_a_larger_memory_request():
    text = "slurmstepd: error: Step 17.0 exceeded memory limit (8388608 > 4194304), being killed"
    assert single(text).fields == {"allocated_bytes": 8 << 30, "limit_bytes": 4 << 30}
    assert "sbatch --mem=10G" in commands(text)


_DESCRIBED = (
    "      Reason:       OOMKilled\n      Exit Code:    137\n    Limits:\n      cpu:     4\n      memory:  24Gi\n"
    "    Requests:\n      memory:  8Gi"
)


@pytest.mark.parametrize(
    ("text", "framework", "fields"),
    [
        ("NAME    READY   STATUS      RESTARTS   AGE\ngpt-0   0/1     OOMKilled   1 (9s ago)   3m", "kubernetes", {}),
        ("team-a   gpt-0   0/2   Init:OOMKilled   0   12s", "kubernetes", {}),
        (_DESCRIBED, "kubernetes", {"limit_bytes": 24 << 30}),
        ("kubelet  System OOM encountered, victim process: python3, pid: 4711", "kubernetes", {"pid": 4711}),
        ('        "OOMKilled": true,\n        "ExitCode": 137,', "docker", {}),
        (
            "4711           train   gpu  OUT_OF_ME+    0:125\n4711.batch     batch        OUT_OF_ME+    0:125",
            "slurm",
            {},
        ),
        ("4711|train|OUT_OF_MEMORY|0:125|", "slurm", {}),
        ("   JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null)", "slurm", {}),
        (
            'job 7 exceeds job hard limit "h_vmem" of queue "gpu.q@n1" (8.50G > limit:8.00G) - sending SIGKILL',
            "sge",
            {"allocated_bytes": 17 << 29, "limit_bytes": 8 << 30},
        ),
    ],
)
def test_states_of_containers_and_jobs_are_recognised(text, framework, fields):
    message = single(text)
    assert (message.dialect, message.framework, message.fields) == ("oom_killer", framework, fields)


@pytest.mark.parametrize(
    ("text", "advised"),
    [
        ("=>> PBS: job killed: mem 8912896kb exceeded limit 8388608kb", "qsub -l mem=11gb"),
        ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", 'bsub -M 64GB -R "rusage[mem=64GB]"'),
        (
            'job 9 exceeds job hard limit "h_vmem" of queue "all.q@n2" (8.50G > limit:8.00G) - sending SIGKILL',
            "qsub -l h_vmem=11G",
        ),
        ("slurmstepd: error: Job 9 exceeded memory limit (8912896 > 8388608), being killed", "sbatch --mem=11G"),
    ],
)
def test_more_memory_is_requested_from_the_scheduler_that_ended_the_job(text, advised):
    lines = commands(text)
    assert lines.startswith(advised)
    assert "docker" not in lines
    assert ("sbatch" in lines) == ("slurm" in text)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            (
                "Killed /user.slice/user-7.slice/user@7.service/app.slice/app-a.scope due to memory used (4000000000)"
                " / total (4200000000) and swap used (900000000) / total (1000000000) being more than 90.00%"
            ),
            {"allocated_bytes": 4000000000, "total_bytes": 4200000000},
        ),
        ("Marked /system.slice/example.service for killing due to memory pressure for /system.slice being 90.0%", {}),
    ],
)
@pytest.mark.parametrize("prefix", ["", "systemd-oomd[71]: ", "Jan 02 03:04:05 node7 systemd-oomd[71]: "])
def test_kills_by_systemd_oomd_are_recognised_with_and_without_its_name(prefix, text, fields):
    message = single(prefix + text)
    assert (message.dialect, message.framework, message.fields) == ("oom_killer", "linux", fields)


@pytest.mark.parametrize(
    "text", ['"OOMKilled": false,', "3 OUT_OF_MEMORY errors were seen last week", "gpt-0   1/1   Running   0   3m"]
)
def test_other_states_are_ignored(text):
    assert not read_text(text).messages


@pytest.mark.parametrize(
    ("group", "advised", "not_advised"),
    [
        ("/slurm/uid_1/job_2/step_0", "sbatch --mem", "docker"),
        ("/system.slice/docker-3f00.scope", "docker run --memory", "sbatch"),
        ("/kubepods/burstable/pod1/2", "docker run --memory", "sbatch"),
        ("/user.slice/user-1000.slice/session-3.scope", "systemctl set-property", "sbatch"),
    ],
)
def test_the_remedy_matches_the_owner_of_the_control_group(group, advised, not_advised):
    message = single(
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={group},"
        f"task_memcg={group},task=python,pid=17,uid=0\nMemory cgroup out of memory: Killed process 17 (python) "
        "total-vm:2048kB, anon-rss:1024kB, file-rss:0kB"
    )
    lines = "\n".join(fix.change for fix in message.findings[0].fixes)
    assert advised in lines
    assert not_advised not in lines


def test_a_systemd_unit_gets_no_container_advice():
    lines = commands("systemd[1]: train.service: A process of this unit has been killed by the OOM killer.")
    assert "systemctl set-property" in lines
    assert "docker" not in lines


def test_numbers_with_commas_are_read():
    message = single(
        "Out of memory: Killed process 17 (python) total-vm:22,096,444kB, anon-rss:1,024kB, file-rss:0kB, shmem-rss:0kB"
    )
    assert message.fields == {"pid": 17, "total_vm_bytes": 22_096_444 << 10, "anon_rss_bytes": 1 << 20}


def _kill(name, more=""):
    return (
        f"Out of memory: Killed process 555 ({name}) total-vm:9000000kB, anon-rss:8000000kB, file-rss:0kB, "
        f"shmem-rss:0kB{more}"
    )


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("python3.11", "DataLoader"),
        ("pt_data_worker", "DataLoader"),
        ("cc1plus", "MAX_JOBS"),
        ("java", "-Xmx"),
        ("node", "max-old-space-size"),
        ("llama-server", "-c "),
        ("perl", "ps aux"),
        ("mysqld", "ps aux"),
        ("ld", "MAX_JOBS"),
        ("ldap-proxy", "ps aux"),
    ],
)
def test_the_first_remedy_matches_the_killed_program(name, first):
    message = single(_kill(name))
    assert first in message.findings[0].fixes[0].change
    assert f"({name})" in message.judgement.reasons[0]
    assert ("DataLoader" in commands(_kill(name))) == (first == "DataLoader")


def test_the_task_name_is_used_if_the_kill_line_is_missing():
    line = (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,"
        "task=perl,pid=88,uid=5"
    )
    assert "ps aux" in single(line).findings[0].fixes[0].change


@pytest.mark.parametrize(
    "line",
    [
        (
            "The node was low on resource: memory. Container train was using 71303168Ki, which exceeds its request of "
            "32Gi."
        ),
        (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 51200Ki. Container x was "
            "using 9Ki, request is 0."
        ),
        "3m12s  Warning  Evicted  pod/train-0  The node had condition: [MemoryPressure].",
    ],
)
def test_memory_pressure_of_a_node_is_not_a_container_limit(line):
    message = single(line)
    assert (message.judgement.verdict, "limit" in message.judgement.alternatives) == ("host", False)
    assert "requests" in message.findings[0].fixes[0].change
    assert "docker run --memory" not in commands(line)


def test_shortage_of_other_node_resources_is_ignored():
    assert not read_text(
        "The node was low on resource: ephemeral-storage. Container x was using 52Ki, which exceeds its request of 0."
    ).messages
