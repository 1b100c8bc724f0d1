"""All lines about one failure form one message, and repetitions are counted."""

from __future__ import annotations

import pytest

from memdiag.oom.incidents import resolve
from memdiag.oom.model import Found
from memdiag.oom.read import read_files, read_text

GIVEN = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 8.00 GiB of which 0.50 GiB is free."
)
OTHER = GIVEN.replace("1.50", "1.75")


def _found(start: int, end: int, name: str, *, warning: bool = False) -> Found:
    return Found(start, end, name, "pytorch", "cuda", is_warning=warning)


def _read(text: str) -> list[tuple[int | None, int, int]]:
    return [(message.rank, message.count, message.line) for message in read_text(text).messages]


def test_of_overlapping_matches_the_longest_wins_and_then_the_first():
    long, short, apart = _found(10, 50, "long"), _found(40, 60, "short"), _found(60, 70, "apart")
    assert resolve([short, apart, long]) == [long, apart]
    assert resolve([_found(0, 9, "a"), _found(0, 9, "b")]) == [_found(0, 9, "a")]
    assert resolve([_found(0, 9, "a", warning=True), _found(0, 9, "b")]) == [_found(0, 9, "b")]
    assert resolve([]) == []


def test_a_match_longer_than_both_neighbours_replaces_them():
    first, middle, last = _found(0, 12, "a"), _found(10, 30, "b"), _found(28, 40, "c")
    assert resolve([first, middle, last]) == [middle]


def test_repeated_messages_of_a_rank_are_counted():
    text = "\n".join([f"[rank1]: {GIVEN}", f"[rank0]: {GIVEN}", f"[rank1]: {GIVEN}", f"[rank1]: {OTHER}"])
    assert _read(text) == [(1, 2, 1), (0, 1, 2), (1, 1, 4)]


def test_a_message_without_numbers_is_judged_by_the_lines_around_every_repetition():
    bare, calm = "RuntimeError: CUDA error: out of memory", "\n".join(["epoch 3 done"] * 200)
    pinning = (
        '  File "/srv/torch/utils/data/_utils/pin_memory.py", line 57, in pin_memory\n    return data.pin_memory()\n'
        f"{bare}"
    )
    (found,) = read_text(f"{bare}\n{calm}\n{bare}\n{calm}\n{pinning}\n{calm}\n{bare}").messages
    assert (found.count, found.line, found.judgement.verdict) == (4, 1, "host")
    assert found.findings[0].code == "MD706"


def test_the_first_rank_is_the_one_that_is_printed_first():
    assert read_text(f"[rank7]: {GIVEN}\n[rank2]: {GIVEN}\n").first_rank == 7
    assert read_text(GIVEN).first_rank is None


def test_an_exception_raised_while_another_is_handled_is_the_same_failure():
    between = (
        "\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
    )
    assert _read(GIVEN + between + GIVEN) == [(None, 1, 1)]
    assert _read(GIVEN + "\nstep 2\n" + GIVEN) == [(None, 2, 1)]


def test_repetitions_that_ray_omits_are_counted():
    assert _read(f"(Worker pid=3) {GIVEN} [repeated 6x across cluster]") == [(None, 7, 1)]


@pytest.mark.parametrize(
    "before",
    ["Failed to initialize executor on rank 5: ", "Error in worker of rank 5: torch.OutOfMemoryError: ", "Rank 5: "],
)
def test_a_rank_may_be_named_right_before_a_message(before):
    assert _read(before + GIVEN) == [(5, 1, 1)]


def test_the_rank_of_another_sentence_is_not_that_of_the_message():
    assert _read(f"rank 5 is done. Now to something else.\n{GIVEN}") == [(None, 1, 2)]


def test_warnings_are_shown_only_without_a_failure():
    mild = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB with freed_by_count=0. The caller "
        "indicates that this is not a failure, but this may mean that there could be performance gains if more memory "
        "were available."
    )
    alone = read_text(mild)
    assert [message.is_warning for message in alone.messages] == [True]
    assert alone.num_warnings_omitted == 0
    both = read_text(f"{mild}\n{GIVEN}\n")
    assert [message.is_warning for message in both.messages] == [False]
    assert both.num_warnings_omitted == 1


def test_requests_that_shrink_by_a_tenth_are_one_failure():
    lines, size = [], 1 << 30
    for _ in range(6):
        lines.append(
            f"E cuda_driver.cc:924] failed to allocate {size / 2**20:.2f}M ({size} bytes) from device: "
            "CUDA_ERROR_OUT_OF_MEMORY"
        )
        size = size * 9 // 10 // 256 * 256
    (message,) = read_text("\n".join(lines)).messages
    assert (message.count, message.fields["requested_bytes"]) == (1, 1 << 30)


def test_kernel_and_shell_lines_about_one_kill_are_one_message():
    kernel = (
        "[17.733819] Out of memory: Killed process 4711 (python) total-vm:49978204kB, anon-rss:12918388kB, file-rss:8kB"
    )
    shell = "job.sh: line 28:  4711 Killed                  python3 main.py"
    for text in (f"{kernel}\n{shell}\n", f"{shell}\n{kernel}\n"):
        (message,) = read_text(text).messages
        assert (message.dialect, message.fields["pid"], message.fields["anon_rss_bytes"]) == (
            "oom_killer",
            4711,
            12918388 << 10,
        )
    assert len(read_text(f"{kernel}\n{shell.replace('4711', '4712')}\n").messages) == 2


def test_rank_and_process_are_read_from_the_torch_npu_line_after_a_message():
    text = (
        "RuntimeError: NPU out of memory. Tried to allocate 96.00 MiB (NPU 1; 60.97 GiB total capacity; 55.80 GiB "
        "already allocated; 55.80 GiB current active; 61.50 MiB free; 58.10 GiB reserved in total by PyTorch)\n\n"
        "[ERROR] 2025-03-04-05:06:07 (PID:4711, Device:1, RankID:3) ERR00006 PTA memory error\n"
    )
    (message,) = read_text(text).messages
    assert (message.rank, message.fields["pid"], message.fields["device_index"]) == (3, 4711, 1)


def test_interleaved_messages_of_two_ranks_are_separated():
    one, two = GIVEN.replace("GPU 0", "GPU 1"), OTHER.replace("GPU 0", "GPU 2")
    pieces = zip(
        [one[at : at + 30] for at in range(0, len(one), 30)],
        [two[at : at + 30] for at in range(0, len(two), 30)],
        strict=True,
    )
    text = "\n".join(f"[rank1]: {first}\n[rank2]: {second}" for first, second in pieces)
    fields = {message.rank: message.fields for message in read_text(text).messages}
    assert (fields[1]["device_index"], fields[1]["requested_bytes"]) == (1, 3 << 29)
    assert (fields[2]["device_index"], fields[2]["requested_bytes"]) == (2, 7 << 28)
    assert (fields[1]["free_bytes"], fields[2]["free_bytes"]) == (1 << 29, 1 << 29)


def test_two_files_are_two_processes(tmp_path):
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    for path in paths:
        path.write_text(GIVEN, encoding="utf-8")
    assert [(message.source, message.count) for message in read_files(paths).messages] == [
        (str(path), 1) for path in paths
    ]


def test_a_scheduler_and_the_shell_report_one_kill():
    limit = "Job has gone over cgroup memory limit of 2048 megabytes."
    messages = read_text(f"run.sh: line 7: 4711 Killed                  python train.py\n{limit}").messages
    assert [(message.dialect, message.fields) for message in messages] == [
        ("host_limit", {"pid": 4711, "limit_bytes": 2048 << 20})
    ]


@pytest.mark.parametrize(
    "line",
    [
        '{{"time": "2033-01-02T03:04:05Z", "rank": 6, "pid": 71, "message": "{message}"}}',
        '{{"message": "{message}", "level": "ERROR", "global_rank": "6"}}',
    ],
)
def test_the_rank_is_a_key_of_a_log_in_json(line):
    message = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 2 has a total capacity of 40.00 GiB"
    assert [one.rank for one in read_text(line.format(message=message)).messages] == [6]


def test_a_word_before_a_message_that_is_not_json_is_no_rank():
    text = 'options {"rank": 8, "alpha": 16}: CUDA out of memory. Tried to allocate 1.50 GiB'
    assert read_text(text).messages[0].rank is None
