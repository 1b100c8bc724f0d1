"""Settings are converted to numbers as each allocator version reads them."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.allocator.policies import POLICIES
from memdiag.allocator.policies.caching.policy import CACHING
from memdiag.allocator.policies.expandable.policy import EXPANDABLE
from memdiag.allocator.policies.npu.policy import NPU
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import RULES, rules_for
from memdiag.errors import MemdiagError
from memdiag.units import GIB, MIB


def sizes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_says_whose_settings_it_reads(name: str) -> None:
    assert POLICIES[name].backend in RULES


def test_the_defaults() -> None:
    conf = Conf.parse("", "cuda", "2.13")
    assert conf == Conf()
    assert (conf.large_segment, conf.large_page, conf.non_split_rounding, conf.max_split) == (
        20 * MIB,
        20 * MIB,
        20 * MIB,
        None,
    )


def test_sizes_are_bytes_and_follow_the_segment() -> None:
    conf = Conf.parse("max_split_size_mb:128,large_segment_size_mb:64", "cuda", "2.13")
    assert (conf.max_split, conf.large_segment, conf.large_page, conf.non_split_rounding) == (
        128 * MIB,
        64 * MIB,
        64 * MIB,
        64 * MIB,
    )


def test_the_unit_of_npu_segments() -> None:
    assert Conf.parse("expandable_segments:True,segment_size_mb:128", "npu", "2.13").large_page == 128 * MIB
    assert (
        Conf.parse("expandable_segments:True,segment_size_mb:128,large_segment_size_mb:40", "npu", "2.13").large_page
        == 40 * MIB
    )
    conf = Conf.parse("page_size:1g", "npu", "2.13")
    assert conf.large_page == GIB
    assert NPU.block_and_segment_sizes(sizes(3 * MIB, GIB), conf, rules_for("npu", "2.13"))[1].tolist() == [
        GIB,
        2 * GIB,
    ]
    assert Conf.parse("base_addr_aligned_kb:0", "npu", "2.13").alignment == 0


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("max_split_size_mb:5", "cuda"),
        ("no_such_key:1", "cuda"),
        ("backend:cudaMallocAsync", "cuda"),
        ("expandable_segments:True,large_segment_size_mb:25", "cuda"),
        ("expandable_segments:True,max_split_size_mb:30", "npu"),
    ],
)
def test_what_the_allocator_refuses_is_refused(text: str, backend: str) -> None:
    with pytest.raises(MemdiagError) as caught:
        Conf.parse(text, backend, "2.13")
    assert caught.value.hint


def test_a_policy_with_expandable_segments_has_them_whatever_is_set() -> None:
    for text in ("", "expandable_segments:False", "roundup_power2_divisions:4,expandable_segments:False"):
        assert Conf.parse(EXPANDABLE.effective_conf(text), "cuda", "2.13").expandable
    assert Conf.parse(EXPANDABLE.effective_conf("roundup_power2_divisions:[4:8,>:2]"), "cuda", "2.13").divisions[1] == 8


def test_what_is_asked_of_the_driver() -> None:
    rounded, segment = CACHING.block_and_segment_sizes(
        sizes(1, MIB, MIB + 1, 10 * MIB - 512, 10 * MIB, 10 * MIB + 1), Conf(), rules_for("cuda", "2.13")
    )
    assert rounded.tolist() == [512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB, 10 * MIB + 512]
    assert segment.tolist() == [2 * MIB, 2 * MIB, 20 * MIB, 20 * MIB, 10 * MIB, 12 * MIB]


def test_npu_adds_32_bytes() -> None:
    rounded, segment = NPU.block_and_segment_sizes(
        sizes(480, 481, MIB - 32, MIB, 30 * MIB), Conf(), rules_for("npu", "2.13")
    )
    assert rounded.tolist() == [512, 1024, MIB, MIB + 512, 30 * MIB + 512]
    assert segment.tolist() == [2 * MIB, 2 * MIB, 2 * MIB, 20 * MIB, 32 * MIB]


def test_divisions_of_one_once_meant_no_rounding() -> None:
    request = sizes(700, 3 * MIB + 5)
    for version, wanted in (("2.2", [700, 3 * MIB + 5]), ("2.4", [1024, 3 * MIB + 512])):
        conf = Conf.parse("roundup_power2_divisions:1", "cuda", version)
        assert CACHING.block_and_segment_sizes(request, conf, rules_for("cuda", version))[0].tolist() == wanted


def test_rules_are_of_the_version_before_where_it_has_none_of_its_own() -> None:
    assert rules_for("cuda", "2.8.0+cu128") == rules_for("cuda", "2.6") != rules_for("cuda", "2.10")
    assert rules_for("cuda", "2.15") == rules_for("cuda", "2.13") != rules_for("cuda", "2.12")
    assert rules_for("cuda", "1.13") == rules_for("cuda", "2.0")
    assert rules_for("cuda", "unknown") == rules_for("cuda", "2.13")


@pytest.mark.parametrize(
    ("text", "device", "most"),
    [
        ("0.5", 100 * GIB, 50 * GIB),
        ("40G", 100 * GIB, 40 * GIB),
        ("40g", 10 * GIB, 10 * GIB + 10 * GIB // 8),  # never more than without the setting
        ("1e30G", GIB, GIB + GIB // 8),
    ],
)
def test_how_much_an_expandable_segment_reserves(text: str, device: int, most: int) -> None:
    reserve = Conf.parse(f"expandable_segments:True,expandable_segments_reserve:{text}", "cuda", "2.15").reserve
    assert reserve is not None
    assert reserve.of(device) == most


@pytest.mark.parametrize("text", ["abc", "G", "-1", "0", "12X", "nan", "inf"])
def test_a_reserve_that_makes_no_sense_is_none(text: str) -> None:
    assert Conf.parse(f"expandable_segments:True,expandable_segments_reserve:{text}", "cuda", "2.15").reserve is None
