"""Log lines are split into speaker and text, with any prefix that a logger adds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.oom.dialects import dialects
from memdiag.oom.lines import Line, by_speaker, read_line, read_lines

SAID = "torch.OutOfMemoryError: CUDA out of memory."

# Prefixes of log lines, and the rank, local rank and process that each names.
PREFIXES = {
    "[rank3]: ": (3, None, None),
    "rank3: ": (3, None, None),
    "[Rank 3] ": (3, None, None),
    "[default3]:": (None, 3, None),
    "[default3]<stderr>:": (None, 3, None),
    "[default3]:[rank11]: ": (11, 3, None),
    "[trainer3|11]: ": (11, 3, None),
    "3: ": (3, None, None),
    "[1,3]<stderr>:": (3, None, None),
    "[3] ": (None, None, None),
    "(Worker pid=123, ip=10.0.0.1) ": (None, None, 123),
    "(VllmWorker rank=3 pid=1090) ": (3, None, 1090),
    "(EngineCore_DP0 pid=10516) ": (None, None, 10516),
    "(Trainer(1, 2) pid=123) [rank3]: ": (3, None, 123),
    "(EngineCore_DP0 pid=1) (Worker_TP0 pid=2) ERROR 12-03 12:16:41 [core.py:710] ": (None, None, 2),
    "(raylet) ": (None, None, None),
    "(raylet, ip=10.0.0.9) ": (None, None, None),
    "(raylet) [2023-07-23 15:21:29,851 E 9751 9751] (raylet) ": (None, None, None),
    "server-1  | ": (None, None, None),
    "server-1  | 2024-05-11T02:24:26.980Z [rank3]: ": (3, None, None),
    "[pod/trainer-0/main] [rank3]: ": (3, None, None),
    "node1: [rank3]: ": (3, None, None),
    "2024-05-11T02:24:26.980123456Z stderr F [rank3]: ": (3, None, None),
    "2024-05-11T02:24:26.9801234Z ##[error]": (None, None, None),
    "2024-05-11 02:24:26,980 - file.py[line:147] - ERROR: ": (None, None, None),
    "2024-05-11 02:24:26,980 - root - ERROR - ": (None, None, None),
    "2024-05-11 02:24:26.980 | ERROR    | __main__:main:42 - ": (None, None, None),
    "[2024-05-11 02:24:26,980] [ERROR] [launch.py:321:sigkill_handler] ": (None, None, None),
    "[2024-05-11 02:24:26 TP3] ": (None, None, None),
    "[07/22/2025-05:45:38] ": (None, None, None),
    "ERROR 06-05 06:18:13 [multiproc_executor.py:470] ": (None, None, None),
    "ERROR 06-09 06:57:48 worker_base.py:581] ": (None, None, None),
    "[multiproc_executor.py:492] ": (None, None, None),
    "I0511 02:24:26.980123 1234 foo.cc:12] ": (None, None, None),
    "[rank0]:[E107 02:38:42.269390205 compiler_depend.ts:444] ": (0, None, None),
    "[rank0]:[W ProcessGroupNCCL.cpp:1553] ": (0, None, None),
    "May 11 02:24:26 node1 kernel: [12345.123456] ": (None, None, None),
    "Sat May 11 02:24:26 2024[1,3]<stderr>:": (3, None, None),
    "[3017506.733819] ": (None, None, None),
    "> ": (None, None, None),
    ">> # [rank3]: ": (3, None, None),
    "- ": (None, None, None),
    "    ": (None, None, None),
    "\x1b[36m(Worker pid=1)\x1b[0m ": (None, None, 1),
    "\\u001b[36m(Worker pid=1)\\u001b[0m ": (None, None, 1),
    "[36m(Worker pid=1)[0m [36m[rank3]: ": (3, None, 1),
}


@pytest.mark.parametrize(("prefix", "who"), PREFIXES.items())
def test_log_prefixes_are_removed(prefix, who):
    line = read_line(7, prefix + SAID)
    assert (line.number, line.text.strip()) == (7, SAID)
    assert (line.rank, line.local_rank, line.log_pid) == who


@given(
    st.lists(
        st.sampled_from([name for name in PREFIXES if name[:1].isdigit() is False and "server" not in name]), max_size=4
    )
)
def test_prefixes_are_removed_in_any_order(names):
    assert read_line(1, "".join(names) + SAID).text.strip() == SAID


@pytest.mark.parametrize(("_form", "message"), [example for dialect in dialects() for example in dialect.EXAMPLES])
def test_the_text_of_a_message_is_kept(_form, message):
    for line in message.split("\n"):
        kept = read_line(1, line).text
        assert line.strip().endswith(kept.strip())
        taken = line.strip().removesuffix(kept.strip())
        # An example may begin with a logger's prefix; the text with its numbers is kept.
        assert len(taken) < 80


@pytest.mark.parametrize(
    "said",
    [
        "[ERROR] 2025-06-09-06:57:54 (PID:92380, Device:0, RankID:-1) ERR99999 UNKNOWN",
        "[PID: 10652] 2025-12-03-12:16:41.842.173 Memory_Allocation_Failure(EL0004): Failed to allocate",
        "> 1369702144",
        ">> allocated memory try setting max_split_size_mb",
        "0 bytes free; 9.23 GiB reserved",
        "line 28:  8156 Killed                  python3 main.py",
        "28:  8156 Killed",
        "reason=[module new memory error][FUNC:FuncErrorReason]",
        "'out of memory'",
        "-1) ERR00006",
        "(GPU 0; 7.79 GiB total capacity)",
    ],
)
def test_text_that_may_belong_to_a_message_is_kept(said):
    line = read_line(1, said)
    assert (line.text, line.key) == (said, "")


def test_text_before_and_after_a_progress_bar_is_kept():
    bar = " 10%|\u2588         | 1/10 [00:01<00:09,  1.00it/s]"
    assert [line.text for line in read_lines(1, f"{bar}\r{bar}{SAID}")] == [SAID]
    assert [line.text for line in read_lines(1, f"{SAID}\r{bar}")] == [SAID]
    assert [line.text for line in read_lines(1, f"[rank1]: one\r{SAID}")] == ["one", SAID]


def test_escaped_newlines_split_a_line_and_windows_paths_do_not():
    assert [line.text for line in read_lines(1, r"Tried to allocate 20.00 MiB\nGPU 0 has\r\n1 GiB")] == [
        "Tried to allocate 20.00 MiB",
        "GPU 0 has",
        "1 GiB",
    ]
    path = r"D:\nets\new\onnxruntime\bfc_arena.cc:330 Failed"
    assert [line.text for line in read_lines(1, path)] == [path]


def test_the_repetition_count_of_ray_is_read():
    line = read_line(
        1, "(Worker pid=3) out of memory. [repeated 6x across cluster] (Ray deduplicates logs by default.)"
    )
    assert (line.text, line.repeats, line.log_pid) == ("out of memory.", 6, 3)


def test_lines_without_a_speaker_belong_to_the_previous_one():
    lines = [
        read_line(number, raw) for number, raw in enumerate(["[rank1]: a", "b", "[rank0]: c", "[rank1]: d", "e"], 1)
    ]
    assert {key: [line.text for line in said] for key, said in by_speaker(lines).items()} == {
        "rank1": ["a", "b", "d", "e"],
        "rank0": ["c"],
    }


def test_ranks_of_two_services_are_two_speakers():
    one, other = (read_line(1, f"server-{number}  | [rank0]: a") for number in (1, 2))
    assert one.key != other.key


@given(st.text())
def test_any_line_is_read(raw):
    lines = read_lines(1, raw)
    assert lines
    assert all(isinstance(line, Line) and line.number == 1 for line in lines)


def test_the_timestamp_of_llama_cpp_is_removed():
    assert read_line(
        1, "2.07.310.009 E ggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 77"
    ).text.startswith("ggml_gallocr")
    assert read_line(1, "2.07.310.009 of what").text == "2.07.310.009 of what"
