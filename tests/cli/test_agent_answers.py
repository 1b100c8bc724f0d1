"""The answers of ``memdiag mcp`` about a trace: what they show of the output of ``memdiag analyze --json``."""

from __future__ import annotations

from memdiag.cli import agent_answers

LIBRARY = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1884 _call_impl"


def site(*stack, size=1 << 30, count=2, names=()):
    return {"bytes": size, "num_tensors": count, "stack": list(stack), "name": "loss.py:4 f", "tensor_names": names}


def found(*sites, findings=()):
    verdict = {"severity": "critical", "summary": "Ran out of memory.", "loss": "", "remedy": "Detach it"}
    return {
        "verdict": verdict | {"command": "x.detach()", "prediction": None},
        "findings": list(findings),
        "devices": [{"device": 0, "top_sites": list(sites)}],
    }


def finding(code):
    fact = {"what": "kept by earlier passes", "value": 3 << 20, "unit": "bytes", "where": "loss.py:4 f"}
    fix = {"title": "Detach it", "change": "x.detach()"}
    return {"code": code, "severity": "critical", "title": f"title {code}", "evidence": [fact] * 9, "fixes": [fix]}


def test_a_site_has_its_callers_in_the_program_and_no_library_frames():
    told = list(
        agent_answers.largest(found(site("/a/loss.py:4 f", LIBRARY, "/a/train.py:9 main", "/a/train.py:20 <module>")))
    )
    assert told[1] == "  1.00 GiB in 2 tensors: loss.py:4 f < train.py:9 main"
    assert told[2] == "files: loss.py = /a/loss.py, train.py = /a/train.py"


def test_a_deep_stack_keeps_both_ends():
    deep = [f"/a/net.py:{line} forward" for line in range(1, 21)]
    (told,) = [line for line in agent_answers.largest(found(site(*deep))) if "GiB" in line]
    first, last = (" < ".join(f"net.py:{line} forward" for line in lines) for lines in ((1, 2, 3), (18, 19, 20)))
    assert told.endswith(f": {first} < … < {last}")


def test_a_site_without_frames_of_the_program_has_its_name():
    told = list(
        agent_answers.largest(found(site(LIBRARY, count=1, names=["head.weight"]), site("/a/x.py:1 f", size=1000)))
    )
    assert told[1] == "  1.00 GiB in 1 tensor: loss.py:4 f (head.weight)"
    assert len(told) == 2  # the second site is too small to matter


def test_call_sites_stand_between_the_first_and_the_further_findings():
    told = list(
        agent_answers.report(found(site("/a/loss.py:4 f"), findings=[finding(f"MD{n}") for n in range(101, 107)]))
    )
    assert told[:3] == ["CRITICAL: Ran out of memory.", "  do first: Detach it", "  change: x.detach()"]
    starts = [line.split()[0] for line in told if line.startswith(("MD", "device", "and"))]
    assert starts == ["MD101", "MD102", "device", "MD103", "MD104", "and"]
    assert told[-1] == "and 2 more: MD105, MD106"
    assert told[4] == "  3.00 MiB kept by earlier passes (loss.py:4 f)"
    assert told.count("  fix: Detach it: x.detach()") == 4
