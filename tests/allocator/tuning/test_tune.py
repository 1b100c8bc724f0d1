"""The search for settings tries allowed choices only, finds the best ones, and does not recommend useless ones."""

import numpy as np
import pytest

from memdiag.allocator.replay import replay
from memdiag.allocator.tuning.space import GRID, Space
from memdiag.allocator.tuning.tune import merit, recommendable, search
from memdiag.results.tune import Score
from tests.allocator.programs import MIB, Program
from tests.allocator.rows import Call


def space(backend="cuda", versions=("2.13",), *, has_limit=False, fixed=None):
    return Space(backend, versions, fixed or ("",) * len(versions), has_limit)


def scored(work, policy, conf, capacity, part=None):
    result = replay(work, policy, conf=conf, capacity=capacity)
    end = part or len(result.status)
    failed = int((result.status[:end] == 1).sum())
    counts = (int(getattr(result, name)[end - 1]) for name in ("retries", "device_allocs", "device_frees"))
    return Score(bool(failed), failed, (int(result.reserved[:end].max()),), *counts)


def growing(num_rounds=24):
    """Returns a workload whose buffers grow from round to round, so that old segments cannot serve new buffers.

    Each round also retains a small buffer.
    """
    calls, number = [], 0
    for k in range(num_rounds):
        calls += [
            Call("alloc", number, (21 + 3 * k) * MIB, 0),
            Call("alloc", number + 1, 3 * MIB + k, 0),
            Call("free", number, 0, 0),
        ]
        number += 2
    return Program("", 1 << 34, "now", calls).workload()


def test_versions_that_do_not_know_a_key_do_not_get_it():
    assert "large_segment_size_mb" in space().keys
    assert "large_segment_size_mb" not in space(versions=("2.13", "2.6")).keys
    assert space(versions=("2.6",)).numbers({"large_segment_size_mb": "32"}) is None
    assert "large_segment_size_mb" not in Space("cuda", ("2.13",), ("",), False, ("2.13", "2.10")).keys
    assert "base_addr_aligned_kb" not in space().keys
    assert "base_addr_aligned_kb" in space("npu").keys


def test_without_a_limit_there_is_no_garbage_collection():
    assert "garbage_collection_threshold" not in space().keys
    assert "garbage_collection_threshold" in space(has_limit=True).keys


@pytest.mark.parametrize(
    "choice",
    [
        {"expandable_segments": "True", "max_split_size_mb": "64"},
        {"max_non_split_rounding_mb": "64"},
        {"roundup_power2_divisions": "3"},
        {"max_split_size_mb": "32", "large_segment_size_mb": "64"},
    ],
)
def test_choices_that_are_refused_or_mean_nothing(choice):
    assert space().numbers(choice) is None


def test_no_expandable_segments_on_windows():
    assert "expandable_segments" in Space("cuda", ("2.13",), ("",), False).keys
    assert "expandable_segments" not in Space("cuda", ("2.13",), ("",), False, on_windows=True).keys


def test_a_choice_that_a_possible_version_refuses_is_none():
    later = Space("cuda", ("2.13",), ("",), True, ("2.5",))
    assert later.numbers({"max_split_size_mb": "64"}) is not None
    for key, value in (("large_segment_size_mb", "64"), ("max_non_split_rounding_mb", "64")):
        assert later.numbers({"max_split_size_mb": "64", key: value}) is None


def test_choices_of_equal_numbers_are_one():
    assert space().numbers({"large_segment_size_mb": "20"}) == space().numbers({})
    assert space().numbers({"expandable_segments": "True"}) != space().numbers({})


@pytest.mark.parametrize("version", ["cuda 2.1", "cuda 2.6", "cuda 2.13", "npu 2.1", "npu 2.9", "npu 2.13"])
def test_every_neighbour_that_is_allowed_parses(version):
    backend, _, number = version.partition(" ")
    have = space(backend, (number,))
    for base in ({}, {"expandable_segments": "True"}, {"max_split_size_mb": "64"}):
        found = [choice for choice in have.neighbours(base) if have.numbers(choice) is not None]
        assert found
        assert all(key in GRID for choice in found for key in choice)


def test_what_is_kept_stays_in_the_text():
    have = space(fixed=("per_process_memory_fraction:0.9",), has_limit=True)
    assert (
        have.text({"garbage_collection_threshold": "0.8"})
        == "per_process_memory_fraction:0.9,garbage_collection_threshold:0.8"
    )


def test_it_finds_what_a_growing_program_needs():
    work, have = growing(), space()
    baseline = scored(work, "caching", "", None)

    def evaluate(choice, is_part):
        return scored(work, "caching", have.text(choice), None, 40 if is_part else None)

    found = search(have, {}, baseline, evaluate, most=150)
    choice, score = recommendable(have, found, baseline, evaluate)[0]
    assert (choice, score) in found.front()
    assert choice["expandable_segments"] == "True"
    assert score.peak < baseline.peak / 2
    front = found.front()
    assert all(not a.dominates(b) for _, a in front for _, b in front)
    exhaustive = min(
        scored(work, "caching", have.text(each), None).peak for each in have.singles({}) if have.numbers(each)
    )
    assert score.peak <= exhaustive
    assert found.is_complete


def test_the_answer_is_the_same_with_and_without_first_parts():
    work, have = growing(12), space()
    baseline = scored(work, "caching", "", None)

    def front(part):
        found = search(
            have,
            {},
            baseline,
            lambda choice, first: scored(work, "caching", have.text(choice), None, first and part),
            most=80,
        )
        return [score for _, score in found.front()]

    assert front(20) == front(None)


def test_a_budget_of_no_time_still_looks_at_something():
    work, have = growing(4), space()
    baseline = scored(work, "caching", "", None)
    found = search(have, {}, baseline, lambda choice, _: scored(work, "caching", have.text(choice), None), seconds=0.0)
    assert not found.is_complete
    assert found.scores


def test_failing_choices_are_on_no_front_beside_ones_that_fit():
    def evaluate(choice, _):
        fits = choice.get("expandable_segments") == "True"
        return Score(int(not fits), int(not fits), (100 if fits else 10,), 0, 1, 0)

    found = search(space(), {}, evaluate({}, False), evaluate, most=30)
    assert {score.num_failing for _, score in found.front()} == {0}


def test_more_driver_calls_must_pay():
    baseline = Score(0, 0, (1000 * MIB,), 0, 100, 0)
    little = Score(0, 0, (999 * MIB,), 0, 3200, 0)
    much = Score(0, 0, (700 * MIB,), 0, 3200, 0)
    assert merit(little, baseline, {}) > merit(baseline, baseline, {}) > merit(much, baseline, {})


def test_scores_of_several_traces():
    score = Score(0, 0, (5, 9, 7), 0, 3, 1)
    assert (score.peak, score.num_driver_calls) == (9, 4)
    assert np.array(score.axes).shape == (5,)


def test_a_longer_line_must_pay_for_its_settings():
    def evaluate(choice, _):
        if choice.get("expandable_segments") != "True":
            return Score(0, 0, (1000 * MIB,), 0, 100, 0)
        saved = 1 if "large_segment_size_mb" in choice else 0
        return Score(0, 0, ((900 - saved) * MIB,), 0, 100, 0)

    have = space()
    found = search(have, {}, evaluate({}, False), evaluate, most=120)
    assert recommendable(have, found, evaluate({}, False), evaluate)[0][0] == {"expandable_segments": "True"}
    assert "large_segment_size_mb" in found.front()[0][0]
