"""``memdiag.serving.use`` reads the use of the KV cache over time, and names what follows from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memdiag.render.serving.json import render as as_json
from memdiag.render.serving.md import render as markdown
from memdiag.render.serving.terminal import render as terminal
from memdiag.render.support.look import Look
from memdiag.serving.read import read_log_text
from memdiag.units import GIB

LOGS = Path(__file__).parent / "logs"
VLLM = (LOGS / "vllm_now.log").read_text(encoding="utf-8")
SGLANG = (LOGS / "sglang.log").read_text(encoding="utf-8")


def vllm(second, running, waiting, usage, more=""):
    return (
        f"(APIServer pid=1) INFO 07-01 09:10:{second:02} [loggers.py:337] Engine 000: "
        "Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 90.0 tokens/s, "
        f"Running: {running} reqs, "
        f"Waiting: {waiting} reqs, {more}"
        f"GPU KV cache usage: {usage}%, Prefix cache hit rate: 0.0%\n"
    )


def sglang(second, running, waiting, usage, worker="TP0"):
    return (
        f"[2025-09-09 12:10:{second:02} {worker}] Decode batch, #running-req: {running}, #token: 900, "
        f"token usage: {usage}, cuda graph: True, gen throughput (token/s): 80.00, #queue-req: {waiting}, \n"
    )


def test_a_start_up_log_has_no_use():
    assert read_log_text(VLLM).use is None
    assert read_log_text(SGLANG).use is None


def test_a_cache_that_is_larger_than_needed_gets_the_size_that_suffices():
    use = read_log_text(VLLM + vllm(0, 3, 0, 20.0) + vllm(10, 8, 0, 40.0) + vllm(20, 9, 0, 35.0)).use
    assert (use.num_samples, use.peak_usage, use.running_at_peak, use.max_running) == (3, 0.4, 8, 9)
    assert (use.peak_line, use.peak_time) == (8, "07-01 09:10:10")
    assert use.conclusion == "ample"
    assert use.needed_bytes == 4 * GIB  # 40 % of 8 GiB, and a quarter more
    assert [fix.change for fix in use.fixes] == [f"--kv-cache-memory-bytes {4 * GIB}"]


@pytest.mark.parametrize(
    ("lines", "conclusion"),
    [
        (vllm(0, 8, 4, 99.1), "full"),
        (vllm(0, 256, 40, 31.0), "limited"),
        (vllm(0, 8, 0, 80.0), "fits"),
        (vllm(0, 8, 4, 99.1, "Preemptions: 2, "), "preempted"),
        (vllm(0, 0, 0, 0.0), "fits"),  # an idle server
    ],
)
def test_waiting_requests_and_preemptions_decide(lines, conclusion):
    assert read_log_text(VLLM + lines).use.conclusion == conclusion


def test_preemptions_of_both_forms_of_vllm_are_counted():
    now = vllm(0, 8, 4, 99.1, "Preemptions: 2, ") + vllm(10, 7, 5, 99.0, "Preemptions: 3, ")
    assert read_log_text(VLLM + now).use.num_preemptions == 5
    line = "WARNING 12-20 10:18:39 scheduler.py:1141] Sequence group 147 is preempted by PreemptionMode.RECOMPUTE mode"
    old = f"{line}. total_num_cumulative_preemption=1\n{line}. total_num_cumulative_preemption=51\n"
    pending = (
        "INFO 12-20 10:18:40 metrics.py:467] Avg prompt throughput: 0.0 tokens/s, Running: 16 reqs, Swapped: 0 reqs, "
        "Pending: 2 reqs, GPU KV cache usage: 92.1%, CPU KV cache usage: 0.0%.\n"
    )
    use = read_log_text((LOGS / "vllm_v0.log").read_text(encoding="utf-8") + old + pending).use
    assert (use.num_preemptions, use.peak_usage, use.waiting_at_peak) == (51, 0.921, 2)
    assert [fix.change for fix in use.fixes] == ["--max-num-seqs 15"]


def test_all_ranks_of_sglang_retract_the_same_requests():
    full = "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.5 -> 0.9\n"
    retract = "".join(f"[2025-09-09 12:11:00 {who}] {full}" for who in ("DP0 TP0", "DP0 TP1", "DP1 TP2"))
    use = read_log_text(SGLANG + sglang(0, 6, 5, 0.94) + retract + sglang(9, 5, 6, 0.97)).use
    assert (use.num_preemptions, use.peak_usage, use.max_waiting) == (4, 0.97, 6)
    assert [fix.change for fix in use.fixes] == ["--max-running-requests 4"]


def test_the_fuller_pool_of_a_hybrid_model_counts():
    line = sglang(0, 4, 0, 0.50).replace(
        "token usage: 0.5,", "full token usage: 1.00, #swa token: 9, swa token usage: 0.06,"
    )
    assert read_log_text(SGLANG + line).use.peak_usage == 1.0


def test_a_new_start_begins_a_new_count():
    start = "INFO 07-01 09:20:00 [core.py:58] Initializing a V1 LLM engine (v0.33.0) with config\n"
    text = VLLM + vllm(0, 8, 4, 99.1, "Preemptions: 2, ") + start + VLLM + vllm(5, 1, 0, 70.0)
    assert read_log_text(text).use.num_preemptions == 0


def test_reports_show_the_peak_and_what_follows():
    report = read_log_text(VLLM + vllm(0, 8, 4, 99.1, "Preemptions: 2, "))
    for text in (terminal(report), markdown(report)):
        assert "peak: 99.1% (07-01 09:10:00, line 7)" in text
        assert "at least 2" in text
        assert "--max-num-seqs 7" in text


def test_the_use_over_time_has_at_most_60_points_with_its_ends_and_its_peak():
    lines = "".join(vllm(number % 60, 4, 0, 99.0 if number == 77 else number / 10) for number in range(200))
    report = read_log_text(VLLM + lines)
    points = report.use.points
    assert len(points) == 60
    assert (points[0].usage, points[-1].usage) == (0.0, 0.199)
    assert [point.line for point in points] == sorted({point.line for point in points})
    assert max(points, key=lambda point: point.usage).line == report.use.peak_line
    assert json.loads(as_json(report))["use"]["points"][-1] == {
        "line": points[-1].line,
        "time": "07-01 09:10:19",
        "usage": 0.199,
        "running": 4,
        "waiting": 0,
    }


def test_reports_draw_the_use_over_time():
    report = read_log_text(VLLM + vllm(0, 1, 0, 0.0) + vllm(10, 8, 2, 100.0) + vllm(20, 4, 0, 55.0))
    text = "over time: 0.0% at first, 100.0% at the peak, 55.0% at the end (07-01 09:10:00 to 07-01 09:10:20)"
    assert f"  ▁█▅\n  {text}" in terminal(report, Look(width=120))
    assert f"  _#=\n  {text}" in terminal(report, Look(width=120, unicode=False))
    assert f"- {text}: `▁█▅`" in markdown(report)
    assert "over time" not in terminal(read_log_text(VLLM + vllm(0, 1, 0, 5.0)))


def test_iterations_of_tensorrt_llm_are_read():
    line = (
        '[TensorRT-LLM][INFO] {"Active Request Count":12,"Context Requests":1,"Free KV cache blocks":50,'
        '"Max KV cache blocks":200,"Scheduled Requests":10,"Timestamp":"12-13-2023 14:55:14",'
        '"Used KV cache blocks":150}\n'
    )
    use = read_log_text((LOGS / "trtllm_cpp.log").read_text(encoding="utf-8") + line).use
    assert (use.peak_usage, use.running_at_peak, use.waiting_at_peak) == (0.75, 10, 2)
    assert use.peak_time == "12-13-2023 14:55:14"
    assert use.fixes == ()
