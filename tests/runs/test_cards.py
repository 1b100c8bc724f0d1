"""Cards that processes of a run share: the parts sum to the card, turns, failures, and processes that have ended."""

from __future__ import annotations

from memdiag.runs.cards import shared_cards

TOTAL = 1000


def use(*samples, changes=(), card="card 0", requested=None):
    """Returns what a process had; samples are (time, occasion, reserved, free)."""
    return {
        "card": card,
        "device": 0,
        "pid": 7,
        "name": "train.py",
        "total_bytes": TOTAL,
        "samples": [list(sample) for sample in samples],
        "changes": [list(change) for change in changes],
        "requested_bytes": requested,
    }


def test_what_others_reserved_is_read_from_their_events():
    first = use((10, "mark", 300, 600), (30, "mark", 300, 200))
    second = use((20, "mark", 100, 500), changes=[(0, 0), (5, 50), (15, 100), (25, 400)])
    (card,) = shared_cards({0: [first], 1: [second]})
    assert [(moment.reserved_bytes, moment.outside_bytes) for moment in card.moments] == [
        ((300, 50), 50),
        ((300, 100), 100),
        ((300, 400), 100),
    ]
    for moment in card.moments:
        assert sum(moment.reserved_bytes) + moment.outside_bytes + moment.free_bytes == TOTAL


def test_without_times_of_events_the_latest_sample_counts():
    first = use((10, "mark", 300, 700), (30, "mark", 300, 600))
    (card,) = shared_cards({0: [first], 1: [use((20, "mark", 100, 600))]})
    assert [moment.reserved_bytes for moment in card.moments] == [(300, 0), (300, 100), (300, 100)]


def test_turns_and_what_the_other_kept():
    engine = use((10, "mark", 800, 100), (20, "mark", 50, 850), (50, "mark", 700, 200))
    trainer = use((5, "start", 0, 900), (30, "phase", 600, 250), (40, "mark", 10, 840))
    (card,) = shared_cards({0: [trainer], 1: [engine]})
    assert [(turn.at_us, turn.from_rank, turn.to_rank, turn.kept_bytes) for turn in card.hand_offs] == [
        (30, 1, 0, 50),
        (50, 0, 1, 10),
    ]


def test_a_failure_names_what_everybody_held():
    (card,) = shared_cards({0: [use((20, "oom", 500, 100), requested=200)], 1: [use((10, "mark", 300, 600))]})
    (failure,) = card.failures
    assert (failure.rank, failure.requested_bytes) == (0, 200)
    assert (failure.moment.reserved_bytes, failure.moment.outside_bytes) == ((500, 300), 100)


def test_a_process_that_has_ended_holds_nothing_when_there_is_no_room_for_it():
    ended = use((10, "end", 600, 300))
    (card,) = shared_cards({0: [ended], 1: [use((20, "mark", 700, 200))]})
    assert card.moments[-1].reserved_bytes == (0, 700)


def test_samples_that_cannot_be_divided_are_counted():
    (card,) = shared_cards({0: [use((10, "mark", 600, 300))], 1: [use((20, "timer", 700, 200))]})
    assert (len(card.moments), card.num_skipped) == (1, 1)


def test_processes_on_different_cards_share_none():
    assert shared_cards({0: [use((1, "mark", 1, 1))], 1: [use((1, "mark", 1, 1), card="card 1")]}) == ()
