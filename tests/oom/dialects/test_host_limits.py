from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import MIB, Form, unit_size
from tests.oom.single import commands, single

FORMS = [
    Form(
        "host_limit",
        "Memory limit of {limit} exceeded with {used} used.",
        {"limit": unit_size("limit", "{:.0f} MiB", MIB), "used": unit_size("allocated", "{:.0f} MiB", MIB)},
    ),
]
CONDOR = "Error from slot1_1@node3.example: Job has gone over cgroup memory limit of 6144 megabytes."


def test_htcondor_prints_limit_and_usage_in_megabytes():
    text = f"{CONDOR} Peak usage: 7168 megabytes.  Consider resubmitting with a higher request_memory."
    message = single(text)
    assert (message.framework, message.judgement.verdict) == ("htcondor", "host")
    assert message.fields == {"limit_bytes": 6144 * MIB, "allocated_bytes": 7168 * MIB}
    assert commands(text).startswith("condor_submit request_memory=9GB")


def test_a_usage_below_the_limit_is_a_sample_and_no_peak():
    text = f"{CONDOR} Last measured usage: 900 megabytes."
    assert "older than the peak" in single(text).judgement.reasons[0]
    assert commands(text).startswith("condor_submit request_memory=12GB")


def test_htcondor_is_found_between_many_other_lines():
    other = "\n".join(f"step {step} loss 0.25 memory 3 GB" for step in range(4000))
    assert single(f"{other}\n{CONDOR}\n{other}").fields == {"limit_bytes": 6144 * MIB}


@pytest.mark.parametrize(
    ("text", "framework", "advised"),
    [
        ("Job has encountered an out-of-memory event.", "htcondor", "condor_submit request_memory=64GB"),
        ("OutOfMemoryError: Container killed due to memory usage", "ecs", "aws batch submit-job"),
        ("Memory limit of 2048 MiB exceeded with 2100 MiB used.", "cloud-run", "gcloud run services update"),
    ],
)
def test_each_service_gets_its_own_command(text, framework, advised):
    assert single(text).framework == framework
    assert commands(text).startswith(advised)


def test_a_configured_limit_is_no_failure():
    assert not read_text("Memory limit of 2048 MiB configured, 100 MiB used.\nrequest_memory = 6144").messages
