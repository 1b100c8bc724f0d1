"""Samples of memory: what a sample holds, how many are kept, and that a source that fails does no harm."""

from __future__ import annotations

import pytest

from memdiag.recorder import sampling
from memdiag.recorder.card_samples import CardSamples
from memdiag.recorder.sampling import END, MARK, OOM, PHASE, START, STEP, TIMER, Sampler

TOTAL = 1000


class Source:
    """A source whose section is the next of some values."""

    name = "card"

    def __init__(self, free=lambda: 0):
        self.free = free
        self.asked = []

    def devices(self):
        return ()

    def take(self, when, devices):
        self.asked.append((when, devices))
        return [{"device": 0, "free_bytes": self.free()}]


def sampler(*sources, steps=0, interval=0):
    made = Sampler(lambda: steps, interval)
    made.devices.add(0)
    for source in sources:
        made.add(source)
    return made


def test_a_sample_has_a_time_an_occasion_a_step_and_a_section_of_each_source():
    other = Source()
    other.name = "host"
    samples = sampler(Source(), other, steps=3)
    samples.take(STEP)
    (found,) = samples.content()
    assert (found["when"], found["step"], found["card"], found["host"]) == (
        "step",
        3,
        [{"device": 0, "free_bytes": 0}],
        [{"device": 0, "free_bytes": 0}],
    )
    assert found["t_us"] > 0


def test_without_an_interval_nothing_is_sampled():
    source = Source()
    off = sampler(source, interval=None)
    for when in (START, PHASE, STEP, MARK, TIMER, OOM, END):
        off.take(when)
    assert not source.asked
    assert off.content() == []


def test_devices_are_not_queried_before_the_program_uses_one():
    source = Source()
    samples = Sampler(lambda: 0, 0)
    samples.add(source)
    samples.take(PHASE)
    assert not source.asked


def test_a_program_without_marks_is_sampled_too():
    source = Source()
    samples = Sampler(lambda: 0, 0)
    samples.add(source)
    source.devices = lambda: [1]
    samples.take(TIMER)
    source.devices = lambda: [1, 3]
    samples.take(END)
    assert source.asked == [(TIMER, (1,)), (END, (1, 3))]


def test_a_source_that_fails_is_not_called_again(capsys):
    class Broken(Source):
        name = "broken"

        def take(self, *_):
            raise OSError("no library")

    samples = sampler(Broken(), Source())
    samples.take(STEP)
    samples.take(STEP)
    assert [list(sample)[3:] for sample in samples.content()] == [["card"], ["card"]]
    assert capsys.readouterr().err.count("no library") == 1


def test_a_section_that_is_known_already_is_not_queried():
    source = Source()
    samples = sampler(source)
    samples.take(OOM, card=[{"device": 0, "free_bytes": 7}])
    assert not source.asked
    assert samples.content()[0]["card"][0]["free_bytes"] == 7


def test_old_samples_are_thinned_but_not_the_fullest_moment(monkeypatch):
    monkeypatch.setattr(sampling, "_MOST", 64)
    monkeypatch.setattr(sampling, "_ALLOWANCE", 1e9)
    free = iter(range(10_000))
    samples = sampler(Source(lambda: (number := next(free)) * (-1 if number == 700 else 1)))
    samples.take(START)
    for _ in range(5000):
        samples.take(PHASE)
    samples.take(END)
    kept = samples.content()
    assert len(kept) <= 65
    assert (kept[0]["when"], kept[-1]["when"]) == (START, END)
    assert min(sample["card"][0]["free_bytes"] for sample in kept) == -700
    times = [sample["t_us"] for sample in kept]
    assert times == sorted(times)


def test_sampling_stops_at_phases_when_it_takes_too_long(monkeypatch):
    monkeypatch.setattr(sampling, "_ALLOWANCE", -1e9)
    samples = sampler(Source())
    for when in (START, PHASE, PHASE, TIMER, STEP, PHASE, STEP, TIMER, MARK, OOM, END):
        samples.take(when)
    # the first phase and the first step show buffers of libraries that are freed before the end
    assert [sample["when"] for sample in samples.content()] == [START, PHASE, STEP, MARK, OOM, END]


class Backend:
    """A backend whose reserved bytes change between two queries, as if the program were running."""

    def __init__(self, *reserved):
        self.reserved = list(reserved)

    def can_ask_driver(self):
        return True

    is_active = True

    def leave_captures_alone(self):
        return True

    def num_devices(self):
        return 2

    def driver_memory(self, _):
        return 400, TOTAL

    def allocator_state(self, _):
        return (self.reserved.pop(0) if len(self.reserved) > 1 else self.reserved[0], 2, 1)


def test_devices_are_in_use_once_their_allocator_has_served_a_request():
    backend = Backend(100)
    backend.allocator_state = lambda device: (100, device, 0)
    assert CardSamples(backend).devices() == [1]
    backend.is_active = False
    assert CardSamples(backend).devices() == []


@pytest.mark.parametrize(("reserved", "expected"), [((100, 100), 100), ((100, 200, 200), 200), ((1, 2, 3, 4, 5), None)])
def test_the_timer_keeps_only_figures_that_belong_together(reserved, expected):
    rows = CardSamples(Backend(*reserved)).take(TIMER, (0,))
    assert [row["reserved_bytes"] for row in rows] == ([] if expected is None else [expected])


def test_the_timer_does_not_query_where_that_could_end_a_capture():
    backend = Backend(100)
    backend.leave_captures_alone = lambda: False
    assert CardSamples(backend).take(TIMER, (0,)) == []
    assert len(CardSamples(backend).take(STEP, (0,))) == 1
