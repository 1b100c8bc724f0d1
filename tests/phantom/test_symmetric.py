"""A rank that runs alone has the symmetric memory of its whole group."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from memdiag.phantom.boot import symmetric  # noqa: E402

known = []


class Original:
    @staticmethod
    def set_group_info(group_name, rank, world_size, store):
        known.append((group_name, rank, world_size, store))

    @staticmethod
    def empty_strided_p2p(size, _stride, dtype, device, _group_name):
        return torch.zeros(size, dtype=dtype, device=device)

    @staticmethod
    def rendezvous(_tensor):
        raise RuntimeError("operation not supported")


@pytest.fixture
def module():
    module = SimpleNamespace(_SymmetricMemory=Original)
    symmetric.begin(module)
    return module


def test_parts_of_other_ranks_are_views_of_the_workspace(module):
    memory = module._SymmetricMemory
    memory.set_group_info("tp", 3, 8, None)
    assert known == [("tp", 3, 8, None)]
    tensor = memory.empty_strided_p2p((1024,), [1], torch.uint8, "cpu", "tp")
    workspace = memory.rendezvous(tensor)
    assert (workspace.rank, workspace.world_size, workspace.buffer_size) == (3, 8, 1024)
    part = workspace.get_buffer(5, (4, 8), torch.float32, 16)
    assert part.shape == (4, 8)
    assert part.data_ptr() == tensor.data_ptr() + 64
    workspace.barrier(channel=1)


def test_memory_of_no_known_group_is_the_drivers_concern(module):
    tensor = module._SymmetricMemory.empty_strided_p2p((16,), [1], torch.uint8, "cpu", "unknown")
    with pytest.raises(RuntimeError, match="not supported"):
        module._SymmetricMemory.rendezvous(tensor)
