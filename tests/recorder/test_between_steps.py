"""Stretches without a step on the CPU: the profiler's events are collected, and allocations keep their stacks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from memdiag.recorder.backends.between_steps import BetweenSteps
from memdiag.recorder.interrupts import resent
from memdiag.recorder.watching.on_main import MainThreadJob, is_at_entry


def _wait_after(num_calls: int, seconds: float) -> float:
    between = BetweenSteps(lambda: 0.0, lambda: None)
    between.collected(num_calls, seconds)
    return between.wait


def test_the_wait_is_shorter_the_more_calls_there_are():
    assert _wait_after(0, 1.0) == _wait_after(1_000, 1.0) == 2.0
    assert _wait_after(400_000, 1.0) == 0.5
    assert _wait_after(10_000_000, 1.0) == 0.2


def test_it_collects_when_it_is_due():
    collected: list[float] = []
    began = time.monotonic()
    between = BetweenSteps(
        lambda: time.monotonic() - (collected or [began])[-1], lambda: collected.append(time.monotonic())
    )
    between.start()
    while len(collected) < 2:
        sum(range(100))  # the main thread runs bytecodes
    between.stop()
    assert collected[0] - began >= between.wait
    assert collected[1] - collected[0] >= between.wait


def test_an_interruption_comes_after_the_block():
    came: list[str] = []
    theirs = signal.signal(signal.SIGINT, lambda *_: came.append("interruption"))
    try:
        with resent():
            os.kill(os.getpid(), signal.SIGINT)
            came.append("block")
        for _ in range(500):
            if len(came) < 2:
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, theirs)
    assert came == ["block", "interruption"]


def _interrupted() -> str:
    frame = sys._getframe()
    while frame.f_code.co_filename != "<string>":
        frame = frame.f_back
    return frame.f_back.f_code.co_name


def test_the_entry_of_a_function_is_no_moment_to_start_a_profiler():
    found: set[tuple[bool, str]] = set()

    def enter() -> None:
        pass

    def ask() -> None:
        job = MainThreadJob(lambda: found.add((is_at_entry(), _interrupted())))
        for _ in range(100):
            job.schedule(())
            job.wait(5)

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():
        enter()
    assert found
    assert (True, sys._getframe().f_code.co_name) not in found  # the loop runs, and does not begin
