"""The parts of a simulated world that replace the functions of other packages."""

from types import SimpleNamespace

import pytest

from memdiag.phantom.boot import world


class OutOfMemory(RuntimeError):
    pass


def test_rank_0_has_the_parameters_of_this_rank():
    calls = []

    def disagree(given):
        calls.append(given)
        raise RuntimeError("Detected a disagreement on list length between rank0 and rank3")

    utils = SimpleNamespace(assert_lst_len_same_as_other_ranks=disagree, get_lst_from_rank0=lambda _: [-1, -1])
    world._replace_checks(utils)
    utils.assert_lst_len_same_as_other_ranks([5, 6])
    assert utils.get_lst_from_rank0([5, 6]) == [5, 6]
    assert calls == [[5, 6]]


def test_running_out_of_memory_is_not_hidden():
    def allocate(_):
        raise OutOfMemory

    utils = SimpleNamespace(get_lst_from_rank0=allocate)
    world._replace_checks(utils)
    with pytest.raises(OutOfMemory):
        utils.get_lst_from_rank0([1])
    assert not hasattr(utils, "assert_lst_len_same_as_other_ranks")


@pytest.fixture
def c10d(monkeypatch):
    monkeypatch.setattr(world, "_sent_shapes", [])
    module = SimpleNamespace(
        send_object_list=lambda *_: None, recv_object_list=None, _new_process_group_helper=lambda *_: None
    )
    world._replace_talk(module)
    return module


def shapes(*sizes):
    return tuple(SimpleNamespace(shape=size, device=SimpleNamespace(type="meta")) for size in sizes)


def test_a_stage_receives_the_shapes_that_an_earlier_stage_of_this_rank_sent(c10d):
    c10d.send_object_list([shapes((4, 1024, 16384))], 64)
    received = [None]
    assert c10d.recv_object_list(received, src=448) == 448
    assert received == [shapes((4, 1024, 16384))]


@pytest.mark.parametrize("sent", [[], [["a request"]], [()]])
def test_other_objects_of_other_ranks_are_refused(c10d, sent):
    if sent:
        c10d.send_object_list([shapes((1, 2))], 64)
        c10d.send_object_list(sent, 64)
    with pytest.raises(RuntimeError, match="cannot make up the objects that rank 3"):
        c10d.recv_object_list([None], src=3)
