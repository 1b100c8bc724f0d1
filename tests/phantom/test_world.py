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
