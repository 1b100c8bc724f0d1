"""Ranks are compared with ranks that hold the same model shard, and an outlier's additional memory explains it."""

from __future__ import annotations

import pytest

from memdiag.fleet.compare import cause_of, differences
from memdiag.fleet.groups import groups_of, middle_of, odd_ones

LAYERS, EMBED, HEAD = ("parameter", "decoder.layers.*.mlp"), ("parameter", "embedding"), ("parameter", "output_layer")
ACT = ("activation", "decoder")


def ranges_of(groups):
    return [group.ranks for group in groups]


@pytest.fixture
def job(facts_of):
    """Returns four stages of two ranks: the first has the embedding, the last the head; early ones hold more."""

    def make(rank):
        stage = rank // 2
        parts = {LAYERS: (4000, 40), ACT: ((4 - stage) * 1000, (4 - stage) * 100)}
        parts |= {EMBED: (500, 1)} if stage == 0 else {HEAD: (500, 1)} if stage == 3 else {}
        return facts_of(parts)

    return {rank: make(rank) for rank in range(8)}


def test_stages_are_groups_with_names(job):
    groups = groups_of(job)
    assert ranges_of(groups) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert "embedding" in groups[0].label
    assert "output_layer" in groups[3].label
    assert "300 activations at the same time" in groups[1].label
    assert odd_ones(job, groups) == []
    assert groups[0].reference_group is None
    assert "100 activations of decoder at once, compared with 400" in groups[3].explanation


def test_a_rank_with_a_number_of_activations_of_its_own_is_odd_among_the_nearest(job, facts_of):
    ranks = job | {rank: facts_of({LAYERS: (4000, 40), ACT: (2000, 200)}) for rank in (8, 9)}
    ranks |= {rank: facts_of({LAYERS: (4000, 40), ACT: (3000, 300)}) for rank in (10, 11)}
    ranks[12] = facts_of({LAYERS: (4000, 40), ACT: (9000, 900)})
    groups = groups_of(ranks)
    assert ranges_of(groups) == [(0, 1), (2, 3, 10, 11, 12), (4, 5, 8, 9), (6, 7)]
    assert [(odd.ranks, odd.cause) for odd in odd_ones(ranks, groups)] == [((12,), "more")]


def test_ranks_that_are_alike_are_one_group(facts_of):
    ranks = {rank: facts_of({LAYERS: (4000 + rank, 40), ACT: (1000 + rank, 100)}) for rank in range(6)}
    groups = groups_of(ranks)
    assert ranges_of(groups) == [tuple(range(6))]
    assert groups[0].label == "all ranks"
    assert groups[0].spread_explanation == ""


def test_ranks_that_all_hold_something_else_are_compared_nonetheless(facts_of):
    ranks = {rank: facts_of({("parameter", f"shard{rank}"): (4000, 40), ACT: (1000, 100)}) for rank in range(8)}
    assert ranges_of(groups_of(ranks)) == [tuple(range(8))]


def test_ranks_of_which_nothing_is_known_are_one_group(facts_of):
    ranks = {rank: facts_of({}, peak_reserved_bytes=None, peak_allocated_bytes=None) for rank in range(3)}
    assert len(groups_of(ranks)) == 1
    assert odd_ones(ranks, groups_of(ranks)) == []


def test_no_ranks_are_no_groups():
    assert groups_of({}) == []


@pytest.mark.parametrize(
    ("part", "size", "number", "more", "cause", "words"),
    [
        (ACT, 3000, 300, {}, "more", "300 activations of decoder at once, compared with 100"),
        (ACT, 3000, 100, {}, "larger", "activations of decoder are 3.00 times as large"),
        (
            ACT,
            3000,
            100,
            {"largest_input_bytes": 900},
            "data",
            "its largest input is 3.00 times as large (longer or more data)",
        ),
        (
            ("activation", "decoder.layers.*.mlp (experts)"),
            2000,
            100,
            {},
            "experts",
            "its experts received more tokens",
        ),
        (
            ("optimizer_state", "exp_avg"),
            2000,
            100,
            {},
            "model",
            "more belongs to the model: optimizer states of exp_avg",
        ),
        (("collective", "all_gather"), 2000, 100, {}, "communication", "more is in buffers of collectives"),
    ],
)
def test_the_cause_of_an_odd_rank(facts_of, part, size, number, more, cause, words):
    usual = {LAYERS: (4000, 40), ACT: (1000, 100)}
    ranks = {rank: facts_of(usual, largest_input_bytes=300) for rank in range(6)}
    ranks[4] = facts_of({**usual, part: (size, number)}, **{"largest_input_bytes": 300, **more})
    (odd,) = odd_ones(
        ranks, groups_of({rank: {**facts, "parameters": {"all": [1, 1]}} for rank, facts in ranks.items()})
    )
    assert (odd.ranks, odd.cause, odd.curve) == ((4,), cause, "reserved")
    assert words in odd.explanation
    assert odd.delta_bytes == sum(each.delta_bytes for each in odd.differences)


def test_memory_that_is_not_in_use_is_a_cause(facts_of):
    usual = {LAYERS: (4000, 40), ACT: (1000, 100)}
    ranks = {rank: facts_of(usual, unused=50) for rank in range(5)} | {5: facts_of(usual, unused=2000)}
    (odd,) = odd_ones(ranks, groups_of(ranks))
    assert (odd.ranks, odd.cause) == ((5,), "unused")
    assert odd.differences[0].category == "unused"


def test_what_is_reserved_may_hide_what_is_allocated(facts_of):
    """A rank that allocates more is an outlier even if all ranks reserve the same amount near the device limit."""
    usual = {LAYERS: (4000, 40), ACT: (1000, 100)}
    ranks = {rank: facts_of(usual, peak_reserved_bytes=9000 << 20) for rank in range(5)}
    ranks[2] = facts_of({**usual, ACT: (3000, 100)}, peak_reserved_bytes=9000 << 20)
    (odd,) = odd_ones(ranks, groups_of(ranks))
    assert (odd.ranks, odd.curve, odd.cause) == ((2,), "allocated", "larger")


def test_a_trace_that_ends_early_is_told(facts_of):
    usual = {LAYERS: (4000, 40), ACT: (1000, 100)}
    ranks = {rank: facts_of(usual) for rank in range(5)}
    ranks[3] = facts_of({LAYERS: (4000, 40), ACT: (100, 10)}, num_events=200, steps=[[0, 1, 1]])
    (odd,) = odd_ones(ranks, groups_of(ranks))
    assert (odd.ranks, odd.cause) == ((3,), "ended")
    assert "ends in step 0" in odd.explanation


def test_those_with_one_cause_stand_together(facts_of):
    usual = {LAYERS: (4000, 40), ACT: (1000, 100)}
    ranks = {rank: facts_of(usual if rank not in (4, 11) else {**usual, ACT: (2000 + rank, 100)}) for rank in range(16)}
    (odd,) = odd_ones(ranks, groups_of(ranks))
    assert (odd.ranks, odd.rank) == ((4, 11), 11)


def test_a_rank_that_ran_out_is_not_the_middle_where_most_did_not(facts_of):
    usual = {LAYERS: (4000, 40), ACT: (1000, 100)}
    ranks = {rank: facts_of(usual, failed={"requested_bytes": 1} if rank == 1 else None) for rank in range(3)}
    assert middle_of(ranks, [0, 1, 2]) != 1
    assert ranges_of(groups_of(ranks)) == [(0, 1, 2)]


def test_nothing_differs(facts_of):
    facts = facts_of({ACT: (1000, 100)})
    assert differences(facts, facts) == []
    assert cause_of([], facts, facts)[0] == "unknown"
