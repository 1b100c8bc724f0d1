from __future__ import annotations

import numpy as np

from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.sites import by_module, by_place, label_of, module_of, stackless
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Frame, Stacks

MIB = 1 << 20
USER = Frame("/app/model.py", 7, "forward")
LINEAR = Frame("/env/site-packages/torch/nn/modules/linear.py", 116, "forward")
ENGINE = Frame("", 0, "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)")
BMM = Frame("", 0, "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)")
SUM = Frame("", 0, "at::_ops::sum_dim_IntList::redispatch(c10::DispatchKeySet)")
LIBC = Frame("/build/sysdeps/x86_64/clone3.S", 81, "clone3")


def viewed(*where):
    """Returns a trace with one tensor for each stack, of 1 MiB, 2 MiB, …"""
    stacks, ids = Stacks.from_lists(where)
    device = RawDevice(
        device=0,
        action=np.full(len(where), schema.ALLOC, np.int8),
        addr=np.arange(len(where)),
        size=(1 + np.arange(len(where))) * MIB,
        stack=ids,
        has_addresses=False,
    )
    trace = build_trace(RawTrace(path="any", format="torch-snapshot", backend="cuda", raws=[device], stacks=stacks))
    return next(iter(Context(at=len(where) - 1).views(trace)))


def test_one_line_reached_by_several_paths_is_one_place():
    view = viewed([USER, Frame("/app/train.py", 1, "main")], [LINEAR, USER], [Frame("/app/other.py", 3, "f")])
    places = by_place(view, view.live)
    assert [(place.label, place.num_tensors, place.bytes) for place in places] == [
        ("model.py:7 forward", 2, 3 * MIB),
        ("other.py:3 f", 1, 3 * MIB),
    ]
    assert view.trace.stacks[places[0].stack][0] == LINEAR  # the stack with most of the site's bytes
    assert sorted(np.concatenate([place.rows for place in places])) == [0, 1, 2]


def test_tensors_without_a_stack_are_told_apart_by_why():
    view = viewed([USER], [], [Frame("/env/site-packages/torch/_tensor.py", 1, "backward")], [])
    labels = {place.label: place.rows.tolist() for place in by_place(view, view.live)}
    assert labels["(backward: autograd's thread has no Python call stack)"] == [3]
    view = viewed([], [])
    assert [place.label for place in by_place(view, view.live)] == [stackless()]


def test_native_stacks_are_named_after_the_operator():
    view = viewed([SUM, BMM, ENGINE, LIBC], [SUM, ENGINE, LIBC], [ENGINE, LIBC], [SUM, USER])
    assert [label_of(view, int(stack)) for stack in view.device.tensors.stack[:2]] == [
        "(backward of Bmm, in autograd's thread)",
        "(sum_dim_IntList during backward, in autograd's thread)",
    ]
    assert label_of(view, int(view.device.tensors.stack[3])) == "model.py:7 forward"
    assert label_of(view, -1) == ""


def test_layers_are_the_innermost_forward():
    view = viewed([LINEAR, USER], [USER], [Frame("/app/train.py", 1, "main")])
    assert by_module(view, view.live) == {"model.py forward": 2 * MIB, "linear.py forward": MIB}
    stacks, ids = Stacks.from_lists([[Frame("C:\\app\\model.py", 7, "forward")]])
    assert module_of(stacks, int(ids[0])) == "model.py forward"
    assert module_of(stacks, -1) == ""
