from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form, integer
from tests.oom.single import commands, single

_PID = {"pid": integer("pid", 1)}
FORMS = [
    Form("host_killed", "RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Killed.", _PID),
    Form(
        "host_killed",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
        "RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory.",
        _PID,
    ),
]


@pytest.mark.parametrize(
    "line",
    [
        "Killed",
        "killed",
        "Killed: 9",
        "/bin/sh: 1: Killed",
        "Your notebook tried to allocate more memory than is available. It has restarted.",
        "Container killed on request. Exit code is 137",
        "已杀死",
        "Getötet",
        "Убито",
        "zsh: killed     python train.py",
        "[1]+  Killed                  python train.py",
        "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)",
        "subprocess.CalledProcessError: Command '['python', 'a.py']' died with <Signals.SIGKILL: 9>.",
        "c++: fatal error: Killed signal terminated program cc1plus",
        "make: *** [Makefile:5: train] Killed",
        "Your session crashed after using all available RAM.",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
    ],
)
def test_reports_of_a_killed_process_are_recognised(line):
    message = single(f"step 1\n{line}\n$")
    assert (message.dialect, message.judgement.verdict) == ("host_killed", "host")


@pytest.mark.parametrize(
    "line",
    [
        "Killed by the author of the story",
        "monsters killed: 9",
        "the process was Killed",
        "他已杀死了龙",
        "DataLoader worker (pid 7) is killed by signal: Segmentation fault.",
        "Process finished with exit code 1370",
    ],
)
def test_similar_words_in_other_text_are_ignored(line):
    assert read_text(line).messages == ()


@pytest.mark.parametrize(
    "line",
    [
        "run.sh: line 3:  4711 Killed                  python a.py",
        "[1]    4711 killed     python a.py",
        "a.sh: 第 3 行\uff1a 4711 已杀死   python a.py",
    ],
)
def test_the_process_is_read_from_shell_messages(line):
    assert single(line).fields == {"pid": 4711}


def test_the_summary_of_torchrun_is_one_message_per_rank():
    block = (
        "[{0}]:\n  time      : 2024-01-01\n  rank      : {0} (local_rank: {0})\n  exitcode  : -9 (pid: 470{0})\n  "
        "traceback : Signal 9 (SIGKILL) received by PID 470{0}\n"
    )
    report = read_text(
        (
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 4701) of "
            "binary: python\n"
        )
        + block.format(1)
        + block.format(2)
    )
    assert [(message.fields["rank"], message.fields["pid"]) for message in report.messages] == [(1, 4701), (2, 4702)]


def test_the_local_rank_is_read_from_the_deepspeed_launcher():
    line = "['/usr/bin/python', '-u', 'a.py', '--local_rank=5', '--deepspeed'] exits with return code = -9"
    assert single(line).fields == {"local_rank": 5}


def test_an_unexpected_worker_exit_has_low_confidence():
    message = single("RuntimeError: DataLoader worker (pid(s) 17, 18) exited unexpectedly")
    assert message.judgement.confidence == "low"
    assert "__main__" in message.judgement.reasons[0]
    assert "num_workers=0" in message.findings[0].fixes[0].change
    assert message.findings[0].title == "Host memory may have run out"


def test_an_exit_code_in_json_is_a_kill():
    text = '"terminated": {\n    "exitCode": 137,\n    "finishedAt": "2033-01-02T03:04:05Z",\n    "reason": "Error"'
    assert (single(text).dialect, single(text).judgement.confidence) == ("host_killed", "medium")


def test_a_container_that_was_stopped_was_not_killed_for_memory():
    assert not read_text('"OOMKilled": false,\n"Dead": false,\n"Pid": 0,\n"ExitCode": 137,').messages


def test_a_hosted_notebook_is_not_told_to_read_the_log_of_the_kernel():
    lines = commands("Your session crashed after using all available RAM.")
    assert lines.startswith("for part in")
    assert "dmesg" not in lines
