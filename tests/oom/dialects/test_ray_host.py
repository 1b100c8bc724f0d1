from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import GIB, Form, fraction, integer, unit_size
from tests.oom.single import commands, single

_SIZES = {
    "used": unit_size("allocated", "{:.2f}GB", GIB),
    "total": unit_size("total", "{:.2f}GB", GIB),
    "threshold": fraction("threshold"),
}
FORMS = [
    Form(
        "ray_host",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node "
        "(IP: 10.0.0.8, ID: 5b) where the task was running was {used} / {total} (0.952354), which exceeds the memory "
        "usage threshold of {threshold}. Ray killed this worker (ID: 0c)",
        _SIZES,
    ),
    Form(
        "ray_host",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node "
        "(IP: 10.0.0.8, ID: 5b) where the task (task ID: 43, name=f, pid={pid}, memory used={one}) was running was "
        "{used} / {total} (0.95), which exceeds the memory usage threshold of {threshold}.",
        {**_SIZES, "pid": integer("pid", 1), "one": unit_size("process", "{:.2f}GB", GIB)},
    ),
]


def test_workers_that_were_not_killed_for_memory_do_not_count():
    text = (
        "{} Workers (tasks / actors) killed due to memory pressure (OOM), 5 Workers crashed due to other reasons at "
        "node (ID: b2)"
    )
    assert single(text.format(4)).judgement.verdict == "host"
    assert read_text(text.format(0)).messages == ()


def test_the_process_list_of_the_first_releases_is_read():
    message = single(
        "RayOutOfMemoryError: More than 95% of the memory on node n is used (60.5 / 62.8 GB). The top 10 memory "
        "consumers are:\n\n"
        "PID\tMEM\tCOMMAND\n123\t5.00GiB\tray::train\n456\t2.00GiB\tpython a.py\n\nIn addition, up to 0.01 GiB of "
        "shared memory is used"
    )
    assert message.fields["processes"] == [[123, 5 * GIB], [456, 2 * GIB]]
    assert message.fields["allocated_bytes"] == round(60.5 * GIB)


def test_rays_list_of_possible_crash_causes_is_a_warning():
    text = (
        "Worker unexpectedly exits. There are some potential root causes. (1) The process is killed by SIGKILL by OOM "
        "killer due to high memory usage."
    )
    assert [(message.is_warning, message.judgement.confidence) for message in read_text(text).messages] == [
        (True, "low")
    ]


def test_the_raylet_message_of_the_first_killing_release_is_read():
    message = single(
        "(raylet, ip=10.0.0.9) [2022-09-01 10:00:00,123 E 7 7] (raylet) node_manager.cc:2900: System memory low at "
        "node with IP 10.0.0.9. Used memory (60.25GB) / total capacity (62.50GB) (0.964) exceeds threshold 0.96, "
        "killing latest task with name f to avoid running out of memory."
    )
    assert message.fields == {
        "allocated_bytes": round(60.25 * GIB),
        "total_bytes": round(62.5 * GIB),
        "threshold": 0.96,
    }


@pytest.mark.parametrize(("worker", "fields"), [("Worker PID: 4711 ", {"pid": 4711}), ("", {})])
def test_the_guess_about_a_worker_leads_to_the_log_of_that_worker(worker, fields):
    text = (
        f"(raylet) A worker died or was killed while executing a task by an unexpected system error. {worker}Worker "
        "exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits. There are some potential root causes. "
        "(1) The process is killed by SIGKILL by OOM killer due to high memory usage."
    )
    message = single(text)
    assert (message.is_warning, message.fields) == (True, fields)
    lines = commands(text)
    assert lines.startswith("tail -n 50 /tmp/ray/session_latest/logs/worker-")
    assert "DataLoader" not in lines
