"""Remedies fit the cause, backend and version; the allocator accepts each of them, and no two exclude each other."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.oom.advice import CODES, advise
from memdiag.oom.dialects import dialects
from memdiag.oom.read import read_text
from memdiag.oom.verdict import judge
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import CAUSES, Judgement
from memdiag.settings.exclusions import EXCLUSIVE, exclude, features
from memdiag.settings.parsers import parse
from memdiag.units import GIB
from tests.oom.made import FOUND, found

PIECES = {"requested": 1, "total": 24, "free": 0.2, "allocated": 14, "unallocated": 9}
FULL = {"requested": 1, "total": 24, "free": 0.2, "allocated": 23, "unallocated": 0.1}
PIECES_NPU = {"requested": 1, "total": 61, "free": 0.5, "allocated": 48, "active": 48, "reserved": 57}


def findings(message):
    return {finding.code: finding for finding in advise(message, judge(message))}


def lines(finding):
    return [fix.change for fix in finding.fixes]


# The version inferred from the wording of a message, or the newest one that the wording allows.
VERSIONS = {"1.10": (1, 10), "2.1": (2, 1), "2.2": (2, 2), "2.5": (2, 5), "npu-1.11": (1, 11)}


def assert_accepted(change, message):
    """Asserts that the allocator accepts the settings of a line in the version that printed the message."""
    settings = re.search(r"ALLOC_CONF=(\S+)", change)
    if settings:
        mark = next((mark.partition(":")[2] for mark in sorted(message.marks) if mark.startswith("generation:")), "")
        version = VERSIONS.get(mark, (2, 13)) if mark.startswith("npu-") == (message.backend == "npu") else (2, 13)
        assert parse(settings[1], message.backend, version).refused is None, (change, version)


def largest(fields):
    """Returns the largest size that a message prints, or the largest sum of a list."""
    lists = [sum(size for _, size in value) for value in fields.values() if isinstance(value, list)]
    return max([value for value in fields.values() if isinstance(value, int)] + lists, default=0)


@pytest.mark.parametrize(
    ("verdict", "code"), list(zip(CAUSES, ("MD701", "MD702", "MD703", "MD704", "MD705", "MD706", "MD707"), strict=True))
)
def test_every_cause_has_its_finding_with_numbers_and_remedies(verdict, code):
    message = found(**PIECES)
    (first, *_) = advise(message, Judgement(verdict, "high"))
    assert first.code == code
    assert first.severity == "critical"
    assert first.evidence
    assert first.fixes
    assert code in CODES


@pytest.mark.parametrize(
    ("backend", "marks", "line"),
    [
        ("cuda", ["generation:2.2"], "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        (
            "cuda",
            ["generation:2.9", "conf-name:PYTORCH_ALLOC_CONF"],
            "export PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
        ("cuda", ["conf-name:PYTORCH_CUDA_ALLOC_CONF"], "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("hip", ["generation:2.2"], "export PYTORCH_HIP_ALLOC_CONF=expandable_segments:True"),
        ("hip", ["conf-name:PYTORCH_ALLOC_CONF"], "export PYTORCH_ALLOC_CONF=expandable_segments:True"),
    ],
)
def test_the_settings_variable_fits_backend_and_version(backend, marks, line):
    assert lines(findings(found(backend, marks=marks, **PIECES))["MD701"])[0] == line


def test_on_ascend_the_variable_is_that_of_torch_npu():
    finding = findings(found("npu", marks=["generation:npu-1.11"], **PIECES_NPU))["MD701"]
    assert lines(finding)[0] == "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"


def test_versions_before_expandable_segments_get_older_settings_and_an_upgrade():
    fixes = findings(found(marks=["generation:1.10"], **PIECES))["MD701"].fixes
    assert fixes[0].change == "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:1022"
    assert [fix.kind for fix in fixes].count("version") == 1
    assert [fix.kind for fix in fixes if "expandable_segments:True" in fix.change] == ["version"]


def test_versions_without_settings_get_none():
    for mark in ("generation:0.4", "generation:1.4"):
        fixes = findings(found(marks=[mark], **PIECES))["MD701"].fixes
        assert {fix.kind for fix in fixes if "ALLOC_CONF" in fix.change} == {"version"}


def test_the_saving_is_bounded_by_the_unallocated_memory():
    saving = findings(found(**PIECES))["MD701"].saving
    assert (saving.low_bytes, saving.expected_bytes, saving.high_bytes, saving.basis) == (0, GIB, 9 * GIB, "estimated")


def test_over_1_gib_unallocated_on_ascend_advises_lifetime_pools_and_memory_for_hccl():
    changes = lines(findings(found("npu", **PIECES_NPU))["MD701"])
    assert {"--memory-fragmentation", "export MEMORY_FRAGMENTATION=1"} <= set(changes)
    # 61 - 0.5 - 57 GiB are already used outside the pool; HCCL needs 400 MiB for one more communicator.
    assert "torch_npu.npu.set_per_process_memory_fraction(0.93)" in changes
    little = found("npu", requested=0.5, total=20, free=0.1, allocated=18, active=18, reserved=18.9)
    assert not any(
        "memory-fragmentation" in line for line in lines(advise(little, Judgement("fragmentation", "low"))[0])
    )


def test_lifetime_pools_name_their_versions_and_exclusions():
    pools = [
        fix for fix in findings(found("npu", **PIECES_NPU))["MD701"].fixes if "lifetime pools" in features(fix.change)
    ]
    assert any("removed" in fix.applicability for fix in pools)
    assert all("expandable_segments:False" in fix.caveat and "HCCL" in fix.caveat for fix in pools)


def test_expandable_segments_are_not_advised_for_sleeping_pools():
    message = found(requested=4, total=80, free=5, allocated=90, unallocated=9, private_pool=0.5, process=70)
    assert not any("expandable_segments:True" in line for line in lines(findings(message)["MD701"]))


def test_capacity_names_the_missing_bytes_and_rules_out_empty_cache():
    both = findings(found(requested=8, total=24, free=3, allocated=20, unallocated=0.1))
    finding = both["MD702"]
    assert {item.what: item.value for item in finding.evidence}["memory missing even without fragmentation"] == 4 * GIB
    assert (
        both["MD708"].title
        == "expandable_segments, empty_cache(): can gain at most 102.40 MiB, but 5.00 GiB is missing"
    )
    assert not any("ALLOC_CONF" in fix.change for fix in finding.fixes)


def test_other_processes_are_named_with_their_memory():
    message = found(
        requested=1,
        total=24,
        free=0.1,
        allocated=2,
        unallocated=0.1,
        process=2.6,
        other_processes=[[70, 20 * GIB], [8, GIB]],
    )
    finding = findings(message)["MD703"]
    assert ("held by process 70", 20 * GIB) in [(item.what, item.value) for item in finding.evidence]
    assert "kill 70 8" in lines(finding)
    assert finding.saving.high_bytes == 24 * GIB - round(0.1 * GIB) - round(2.6 * GIB)


def test_kill_is_advised_only_for_printed_processes():
    finding = findings(found(requested=1, total=24, free=0.5, allocated=2, reserved=2.2))["MD703"]
    assert not any(line.startswith("kill") for line in lines(finding))


@pytest.mark.parametrize(
    ("backend", "tool"), [("cuda", "nvidia-smi"), ("hip", "rocm-smi"), ("npu", "npu-smi"), ("xpu", "xpu-smi")]
)
def test_processes_on_a_device_are_listed_with_the_vendors_tool(backend, tool):
    (finding, *_) = advise(found(backend, **FULL), Judgement("other_process", "low"))
    assert lines(finding)[0].startswith(tool)


def test_a_limit_is_raised_by_what_the_request_needs():
    finding = findings(found(requested=2, total=80, free=30, allocated=39, unallocated=0.5, limit=40))["MD704"]
    assert finding.saving.low_bytes == round(1.5 * GIB)
    share = re.search(r"set_per_process_memory_fraction\(([\d.]+)\)", lines(finding)[0])
    assert 41.5 <= float(share[1]) * 80 <= 43.5


def test_raising_the_mps_watermark_is_the_last_remedy():
    finding = findings(found("mps", requested=1, allocated=17, other_alloc=0.5, limit=18))["MD704"]
    assert lines(finding)[-1] == "export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0"
    assert "smaller batch" in finding.fixes[0].title


def test_the_hint_of_the_message_is_contradicted_without_fragmentation():
    message = found(marks=["hint:max_split_size_mb"], **FULL)
    assert "102.40 MiB" in findings(message)["MD708"].title
    assert "MD708" not in findings(found(marks=["hint:max_split_size_mb"], **PIECES))
    assert "102.40 MiB" in findings(found(**FULL))["MD708"].title


def test_a_segment_size_is_not_reported_as_a_tensor_size():
    (asked,) = [
        item
        for item in findings(found(requested=2 / 1024, total=24, free=0, allocated=23.5, unallocated=0))[
            "MD702"
        ].evidence
        if item.what == "requested"
    ]
    assert "1 MiB or less" in asked.where


def test_an_alternative_cause_with_its_own_numbers_is_an_info_finding():
    message = found(requested=1, total=64, free=0, allocated=50, reserved=57)
    message_findings = advise(message, Judgement("fragmentation", "medium", ("other_process",)))
    assert [(finding.code, finding.severity) for finding in message_findings] == [
        ("MD701", "critical"),
        ("MD703", "info"),
    ]


def test_fixes_of_a_dialect_come_first_and_once():
    own = LazyFix("oom_shared.batch", "env", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    changes = lines(advise(replace(found(**PIECES), fixes=(own,)), Judgement("fragmentation", "high"))[0])
    assert changes[0] == own.change
    assert changes.count(own.change) == 1


def test_a_fix_of_a_dialect_replaces_a_general_one_with_another_value():
    own = LazyFix("oom_nccl.room", "code", "torch_npu.npu.set_per_process_memory_fraction(0.5)")
    changes = lines(advise(replace(found("npu", **PIECES_NPU), fixes=(own,)), Judgement("workspace_or_comm", "low"))[0])
    assert [line for line in changes if "memory_fraction" in line] == [own.change]


def test_fixes_of_a_dialect_with_its_own_verdict_are_the_only_ones():
    own = (LazyFix("oom_shared.batch", "flag", "--one 1"), LazyFix("oom_shared.accuracy", "flag", "--two 2"))
    judgement = Judgement("limit", "high")
    assert advise(replace(found(**FULL), fixes=own, judgement=judgement), judgement)[0].fixes == tuple(
        fix.fix() for fix in own
    )


def test_first_fixes_of_every_dialect_example_are_compatible():
    for dialect in dialects():
        for form, text in dialect.EXAMPLES:
            for message in read_text(text).messages:
                firsts = [finding.fixes[0].change for finding in message.findings if finding.fixes]
                assert not any(
                    exclude(message.backend, one, other) for one, other in itertools.combinations(firsts, 2)
                ), form
                assert {finding.code for finding in message.findings} <= set(CODES)
                assert message.findings[0].fixes, form


def test_a_warning_is_not_a_critical_finding():
    assert advise(replace(found(**FULL), is_warning=True), Judgement("capacity", "low"))[0].severity == "warning"


def test_other_frameworks_get_no_settings_of_pytorch():
    for verdict in CAUSES:
        for finding in advise(found(framework="jax", **PIECES), Judgement(verdict, "low")):
            assert not any("torch.cuda" in fix.change or "ALLOC_CONF" in fix.change for fix in finding.fixes), verdict


def test_incompatible_settings_exclude_each_other():
    expandable, split = (
        "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True",
        "export PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64",
    )
    assert exclude("npu", expandable, split)
    assert exclude("npu", expandable, "--memory-fragmentation")
    assert exclude(
        "cuda", "torch.cuda.set_per_process_memory_fraction(0.5)", "torch.cuda.set_per_process_memory_fraction(0.9)"
    )
    assert not exclude("cuda", expandable, "export NCCL_BUFFSIZE=2097152")
    assert all(len(pair) == 2 for _, pair in EXCLUSIVE)


@given(
    FOUND,
    st.sampled_from(CAUSES),
    st.sampled_from(["high", "medium", "low"]),
    st.lists(st.sampled_from(CAUSES), max_size=3, unique=True),
)
def test_any_numbers_get_valid_advice(message, verdict, confidence, others):
    own = judge(message)
    given_one = Judgement(verdict, confidence, tuple(other for other in others if other != verdict), ("So.",))
    for judgement in (own, given_one):
        result = advise(message, judgement)
        assert result
        for finding in result:
            assert finding.code in CODES
            assert "unknown" not in finding.title
            assert all(item.value is not None for item in finding.evidence)
            if finding.saving:
                saving = finding.saving
                printed = largest(message.fields)
                assert 0 <= saving.low_bytes <= saving.expected_bytes <= saving.high_bytes <= printed
                assert saving.basis == "estimated"
            for fix in finding.fixes:
                if fix.kind != "version":
                    assert_accepted(fix.change, message)
                sizes = re.findall(r"max_split_size_mb:(\d+)", fix.change)
                assert all(int(size) > 20 for size in sizes)
                fractions = re.findall(r"memory_fraction[(:]([\d.]+)", fix.change)
                assert all(0 < float(share) <= 1 for share in fractions)
        firsts = [finding.fixes[0].change for finding in result if finding.fixes]
        assert not any(exclude(message.backend, one, other) for one, other in itertools.combinations(firsts, 2))
