"""The hook positions are inferred in recordings with marks, with stacks only, and with neither."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from memdiag.allocator.calibration.from_trace import workload_of
from memdiag.allocator.policies.lifecycle import module_calls
from memdiag.allocator.policies.lifecycle.hooks import marks_of
from memdiag.allocator.policies.lifecycle.marks import KINDS, HookMarks, HookWindows
from memdiag.allocator.policies.lifecycle.module_calls import edges_of_layers, edges_of_stacks, with_those_too_deep
from memdiag.allocator.policies.lifecycle.stack_calls import edges_of
from memdiag.errors import MemdiagError
from memdiag.sources.torch_snapshot import read
from memdiag.trace.recording import ProcessMarks
from memdiag.trace.schema import PHASES
from memdiag.trace.stacks import Frame, Stacks
from tests.allocator.policies.lifecycle.lifecycle_program import Program

GPT = Path(__file__).parents[4] / "examples" / "gpt-train.pickle"  # 6 layers, 6 steps, two of them of two micro-batches
NONE = dict.fromkeys(("setup", "forward", "step", "optimizer"), "none")


def found(path: Path, hooks: str = "layer", **changes: object) -> tuple[HookMarks, Counter[str]]:
    trace = replace(read(path), **changes)
    device = trace.devices[0]
    marks = marks_of(trace, device, workload_of(trace, device), hooks)
    return marks, Counter(KINDS[kind] for kind in marks.kind.tolist())


@pytest.mark.parametrize("kind", ["cpu", "cuda", "npu"])
def test_a_recording_by_memdiag_tells_all(goldens: Path, kind: str) -> None:
    (path,) = goldens.glob(f"{kind}-*-recorded/snapshot.pickle")
    marks, count = found(path)
    assert set(marks.bases.values()) == {"marks"}
    assert count["step_begin"] == count["step_end"] == 3
    # the empty window after set-up, four layers, three steps
    assert count["forward_begin"] == count["forward_end"] == 1 + 12
    assert count["precise_begin"] == count["precise_end"] == 2
    assert count["release"] == 1


@pytest.mark.parametrize("hooks", ["layer", "stack"])
@pytest.mark.parametrize("kind", ["cuda", "npu"])
def test_stacks_and_marks_see_the_same_calls(goldens: Path, kind: str, hooks: str) -> None:
    (path,) = goldens.glob(f"{kind}-*-recorded/snapshot.pickle")
    (by_marks, _), (by_stacks, _) = found(path, hooks), found(path, hooks, recorded=None)
    assert by_stacks.bases["forward"] == "stacks"
    assert (by_stacks.kind == by_marks.kind).all()
    assert abs(by_stacks.at - by_marks.at).max() <= 1  # frees at the end of a layer: stacks do not show their layer


def test_stacks_show_loops_over_layers() -> None:
    marks, count = found(GPT)
    assert marks.bases["forward"] == "stacks"
    assert count["forward_begin"] == 1 + 8 * 6
    assert count["step_begin"] == 6
    _, of_stacks = found(GPT, "stack")
    assert of_stacks["forward_begin"] == 1 + 8


def test_marks_are_in_order_and_stand_between_calls() -> None:
    for hooks in ("layer", "stack"):
        marks, _ = found(GPT, hooks)
        assert (np.diff(marks.at) >= 0).all()
        trace = read(GPT)
        num_calls = len(workload_of(trace, trace.devices[0]).op)
        assert marks.at.min() >= 0
        assert marks.at.max() <= num_calls


def test_without_stacks_whole_passes(goldens: Path) -> None:
    (path,) = goldens.glob("cuda-*-recorded/snapshot.pickle")
    device = read(path).devices[0]
    silent = replace(device, events=device.events.replace(stack=np.full(device.num_events, -1, np.int32)))
    marks, count = found(path, recorded=None, devices=(silent,))
    assert marks.bases["forward"] == "phases (marks)"
    assert count["forward_begin"] == 1 + 6


def test_without_anything_nothing(goldens: Path) -> None:
    (path,) = goldens.glob("cuda-*-recorded/snapshot.pickle")
    device = read(path).devices[0]
    nowhere = np.full(device.num_events, -1, np.int32)
    silent = replace(
        device, events=device.events.replace(stack=nowhere, step=nowhere, phase=np.zeros(device.num_events, np.int8))
    )
    marks, count = found(path, recorded=None, devices=(silent,), bases={})
    assert marks.bases == NONE
    assert count == {"forward_begin": 1, "forward_end": 1}


def test_a_trace_from_the_midst_has_no_set_up_and_no_first_optimizer_step(goldens: Path) -> None:
    (path,) = goldens.glob("cuda-2.13.0-late/snapshot.pickle")
    marks, count = found(path)
    assert (marks.bases["setup"], marks.bases["optimizer"]) == ("none", "none")
    assert count["precise_begin"] == count["release"] == 0
    assert count["forward_begin"] >= 1
    assert marks.at[0] == 0  # the empty window, after which the next one counts, has ended


def test_there_are_two_kinds_of_hooks() -> None:
    with pytest.raises(MemdiagError, match="does not know hooks of the kind module"):
        found(GPT, "module")


# ---- module marks


class _Device:
    num_events = 100


@pytest.fixture
def _placed_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places marks at the event that they give as their time."""
    monkeypatch.setattr(module_calls, "place", lambda _recorded, _device, columns: columns["time_ns"])


def recorded(*marks: tuple[int, str]) -> ProcessMarks:
    """Returns marks with explicit positions: (event, path; "" for none)."""
    names = tuple(dict.fromkeys(path for _, path in marks if path))
    modules = {
        "time_ns": np.array([at for at, _ in marks], np.int64),
        "name": np.array([names.index(path) if path else -1 for _, path in marks], np.int64),
    }
    return ProcessMarks(names, {}, modules, {}, {})


def edges(found: list[tuple[int, bool]]) -> str:
    return " ".join(f"{'(' if begins else ')'}{at}" for at, begins in found)


DECODER = recorded(
    (1, "GPT"),
    (2, "decoder"),
    (3, "decoder.layers.0"),
    (4, "decoder.layers.0.mlp"),
    (5, "decoder.layers.0"),
    (6, "decoder"),
    (7, "decoder.layers.1"),
    (8, "decoder"),
    (9, "GPT"),
    (10, ""),
)
LIST = recorded(
    (1, "GPT"),
    (2, "h.0"),
    (3, "GPT"),
    (4, "h.1"),
    (5, "GPT"),
    (6, "head"),
    (7, "GPT"),
    (8, ""),
    (9, "GPT"),
    (10, "h.0"),
)


@pytest.mark.usefixtures("_placed_by_hand")
def test_layers_are_parts_of_lists() -> None:
    assert edges(edges_of_layers(DECODER, _Device())) == "(3 )6 (7 )8"
    assert edges(edges_of_layers(LIST, _Device())) == "(2 )3 (4 )5 (10 )100"


@pytest.mark.usefixtures("_placed_by_hand")
def test_experts_are_calls_within_calls() -> None:
    experts = recorded(
        (1, "layers.0"),
        (2, "layers.0.experts.3"),
        (2, "layers.0.experts.3.up"),
        (3, "layers.0.experts"),
        (4, "layers.0.experts.5"),
        (6, "layers.1"),
    )
    assert edges(edges_of_layers(experts, _Device())) == "(1 (2 )3 (4 )6 )6 (6 )100"


@pytest.mark.usefixtures("_placed_by_hand")
def test_a_stack_is_the_owner_of_a_list() -> None:
    assert edges(edges_of_stacks(DECODER, _Device())) == "(2 )9"
    assert edges(edges_of_stacks(LIST, _Device())) == "(2 )5 (10 )100"


@pytest.mark.usefixtures("_placed_by_hand")
def test_a_stack_is_seen_where_its_layers_cannot_be_placed() -> None:
    deep = recorded(
        (1, "module"), (2, "module.decoder"), (-1, "module.decoder.layers.0"), (-1, "module.decoder"), (9, "module")
    )
    assert edges_of_layers(deep, _Device()) == []
    assert edges(edges_of_stacks(deep, _Device())) == "(2 )9"


@pytest.mark.usefixtures("_placed_by_hand")
def test_a_layer_computed_again_is_a_call_of_its_own_and_none_of_the_stack() -> None:
    again = recorded((1, "layers.0"), (2, "GPT"), (3, ""), (5, "layers.0"), (6, ""), (7, "layers.0"), (8, ""))
    assert edges(edges_of_layers(again, _Device())) == "(1 )2 (5 )6 (7 )8"
    assert edges(edges_of_stacks(again, _Device())) == "(1 )2"
    inner = recorded(
        (1, "decoder"),
        (2, "decoder.layers.0"),
        (3, "decoder"),
        (4, ""),
        (5, "decoder.layers.0"),
        (6, ""),
        (7, "decoder"),
    )
    assert edges(edges_of_stacks(inner, _Device())) == "(1 )4 (7 )100"


@pytest.mark.usefixtures("_placed_by_hand")
def test_a_part_of_a_layer_computed_again_is_no_call_of_the_layer() -> None:
    part = recorded(
        (1, "GPT"),
        (2, "layers.0"),
        (3, "layers.0.mlp"),
        (4, "layers.0"),
        (5, "GPT"),
        (6, ""),
        (7, "layers.0.mlp"),
        (8, ""),
    )
    assert edges(edges_of_layers(part, _Device())) == "(2 )5"
    assert edges(edges_of_stacks(part, _Device())) == "(2 )5"


@pytest.mark.usefixtures("_placed_by_hand")
def test_where_marks_begin_a_call_may_be_under_way() -> None:
    late = recorded(
        (1, "decoder.layers.0.mlp"),
        (2, "decoder.layers.0"),
        (3, "decoder"),
        (4, "decoder.layers.1"),
        (5, "decoder"),
        (6, ""),
    )
    assert edges(edges_of_layers(late, _Device())) == "(1 )3 (4 )5"
    assert edges(edges_of_stacks(late, _Device())) == "(1 )6"


@pytest.mark.usefixtures("_placed_by_hand")
def test_layers_too_deep_for_marks_are_guessed_where_the_stack_runs() -> None:
    again = [(20, True), (24, False), (24, True), (26, False)]  # from backward, the marks have a position
    stacks = [(2, True), (10, False), (30, True), (40, False)]
    guessed = [(2, True), (6, False), (6, True), (10, False), (15, True), (17, False), (30, True), (40, False)]
    assert edges(with_those_too_deep(again, stacks, guessed)) == "(2 )6 (6 )10 (20 )24 (24 )26 (30 )40"
    assert with_those_too_deep([*stacks], stacks, guessed) == stacks


# ---- stacks


def seen(*lines: tuple[int, ...], backward_from: int | None = None) -> str:
    """Returns the calls of layers and of the stack in allocations given by lines of ``forward``, outermost first."""
    stacks, number = Stacks.from_lists(
        [[Frame("model.py", line, "forward") for line in reversed(chain)] for chain in lines]
    )
    columns = {"action": np.zeros(len(lines), np.int8), "stack": number, "phase": np.zeros(len(lines), np.int8)}
    columns["phase"][backward_from if backward_from is not None else len(lines) :] = PHASES.index("backward")
    device = SimpleNamespace(events=SimpleNamespace(**columns), num_events=len(lines))
    return " / ".join(edges(edges_of(stacks, device, layers=layers)) for layers in (True, False))


def test_a_line_that_calls_again_from_the_beginning_is_a_loop() -> None:
    layer = [(7, 1), (7, 2), (7, 3)]
    assert seen((5,), *layer * 4, (9,)) == "(1 )4 (4 )7 (7 )10 (10 )13 / (1 )13"
    assert (
        seen((5,), *layer * 4, (9,), (5,), *layer * 2, (9,))
        == "(1 )4 (4 )7 (7 )10 (10 )13 (15 )18 (18 )21 / (1 )13 (15 )21"
    )


def test_loops_within_a_layer_go_back_not_as_far() -> None:
    layer = [(7, 1), (7, 3), (7, 4), (7, 3), (7, 4)]
    assert seen((5,), *layer * 4) == "(1 )6 (6 )11 (11 )16 (16 )21 / (1 )21"


def test_two_calls_on_one_line_are_no_layers() -> None:
    layer = [(7, 1, 50), (7, 1, 20), (7, 1, 21), (7, 2, 50), (7, 2, 30)]  # attention(norm(x)), then mlp(norm(x))
    assert seen((5,), *layer * 5) == "(1 )6 (6 )11 (11 )16 (16 )21 (21 )26 / (1 )26"


def test_what_backward_computes_again_begins_with_the_layer_itself() -> None:
    layer = [(7, 1), (7, 2), (7, 3)]
    alone = [line[1:] for line in layer]
    forward = "(1 )4 (4 )7 (7 )10 (10 )13 (13 )16 (16 )19"
    one_at_a_time = [*alone, (), *alone]
    assert seen((5,), *layer * 6, (9,), *one_at_a_time, backward_from=20) == f"{forward} (20 )23 (24 )27 / (1 )19"
    # repeated calls must not hide those in forward
    two_at_a_time = [
        *alone,
        *alone,
        (),
        *alone,
        *alone,
    ]
    again = "(20 )23 (23 )26 (27 )30 (30 )33"
    assert seen((5,), *layer * 6, (9,), *two_at_a_time, backward_from=20) == f"{forward} {again} / (1 )19"


def test_a_part_of_a_layer_that_backward_computes_again_is_no_call_of_the_layer() -> None:
    layer = [(7, 1), (7, 2, 40), (7, 2, 41)]
    part = [(40,), (41,)]
    assert seen((5,), *layer * 4, (9,), *part, (), *part, backward_from=14) == "(1 )4 (4 )7 (7 )10 (10 )13 / (1 )13"


def test_without_a_loop_nothing_is_guessed() -> None:
    assert seen((5,), (7, 1), (8, 1), (9, 1), (5,), (7, 1)) == " / "


# ---- the state of every call


def test_windows_of_calls() -> None:
    program = (
        Program().mark("precise_begin").alloc(0, 1).mark("precise_end", "forward_begin", "forward_end").alloc(1, 1)
    )
    program.mark("step_begin", "forward_begin").alloc(2, 1).mark("forward_end").alloc(3, 1).mark("step_end").alloc(4, 1)
    windows = HookWindows.of(program.hooks, 5)
    assert windows.precise.tolist() == [True, False, False, False, False]
    assert windows.forward.tolist() == [False, False, True, False, False]
    assert windows.step.tolist() == [False, False, True, True, False]
    assert windows.ends.tolist() == [1, 4, 3, 4, 5]


def test_no_marks() -> None:
    assert HookMarks.none().bases == NONE
    windows = HookWindows.of(HookMarks.none(), 3)
    assert windows.ends.tolist() == [3, 3, 3]
