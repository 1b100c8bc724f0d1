"""Cards that processes of a run share: the parts sum to the card, turns, failures, and processes that have ended."""

from __future__ import annotations

from dataclasses import replace

from memdiag.render import renderer
from memdiag.render.record import terminal
from memdiag.render.support.look import Look
from memdiag.results.fleet import FleetReport
from memdiag.results.recording import RunMemory, RunSummary
from memdiag.runs.cards import shared_cards
from tests.render.fleet.test_fleet import report_of

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


def colocated():
    """Returns the card of a trainer that runs out of memory because a sleeping engine keeps more with every turn."""
    engine = use((10, "mark", 800, 150), (50, "mark", 700, 250), (90, "mark", 750, 200))
    trainer = use(
        (5, "start", 0, 950), (30, "phase", 600, 290), (40, "mark", 10, 880), (70, "phase", 600, 150), requested=400
    )
    trainer["samples"] += [[75, "mark", 10, 740], [95, "oom", 650, 200]]
    engine["changes"] = [[0, 0], [6, 800], [20, 60], [45, 700], [60, 200], [80, 750], [92, 100]]
    (card,) = shared_cards({0: [trainer], 1: [engine]})
    return card


def test_every_form_of_a_fleet_shows_who_held_what():
    card = colocated()
    assert (len(card.hand_offs), len(card.failures)) == (5, 1)
    report = FleetReport(("Well.",), (), (), (), (), (), None, (), (), cards=(card,))
    ranks = report_of(2).ranks
    report = replace(report, ranks=ranks)
    for form in ("terminal", "md", "html"):
        text = renderer("fleet", form)(report, Look(), 5)
        for words in ("rank 1 takes over", "rank 0 out of memory", "shared by several processes", "MD303"):
            assert words in text, form
    page = renderer("fleet", "html")(report, Look(), 5)
    assert page.count('class="stack"') >= len(card.hand_offs) + len(card.failures)
    assert "sum to the 1000 B of the card" in page


def test_two_ranks_that_never_take_turns_are_shown_at_the_fullest_sample():
    first = use((10, "step", 300, 600), (30, "step", 300, 200))
    (card,) = shared_cards({0: [first], 1: [use((20, "step", 100, 500), (40, "end", 100, 550))]})
    assert not card.hand_offs
    report = replace(FleetReport(("Well.",), (), (), (), (), (), None, (), (), cards=(card,)), ranks=report_of(2).ranks)
    for form in ("terminal", "md", "html"):
        assert "fullest sample" in renderer("fleet", form)(report, Look(), 5), form


def test_the_summary_of_a_recording_has_a_line_for_the_card():
    nothing = RunSummary("run", "", False, None, ({}, {}), None, 0, 1.0, 0.0, 0.0, False, False, (), (), ())
    lines = terminal.memory(replace(nothing, memory=RunMemory(), cards=(colocated(),)))
    assert "shared by ranks 0, 1, which took turns 5 times" in lines[0]
    assert "when rank 0 ran out of memory: rank 0 650 B, rank 1 100 B, other 50 B, free 200 B" in lines[1]
    assert "rank 1 kept when another took over" in lines[2]
