"""Tensors without memory of their own are named by that of their parts."""

import pytest

from memdiag.recorder.storages import storages_of, with_memory

torch = pytest.importorskip("torch")


class Quantised(torch.Tensor):
    """A weight that consists of integers and a scale, as torchao's."""

    @staticmethod
    def __new__(cls, values, scale):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype)

    def __init__(self, values, scale):
        self.values_, self.scale = values, scale

    def __tensor_flatten__(self):
        return ["values_", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


def sizes_of(tensor):
    return [size for *_, size in storages_of(torch, tensor)]


def test_a_plain_tensor_and_a_parameter_have_one_storage():
    assert sizes_of(torch.zeros(6)) == [24]
    assert sizes_of(torch.nn.Parameter(torch.zeros(6))) == [24]


def test_a_quantised_weight_has_the_storages_of_its_parts():
    weight = Quantised(torch.zeros(4, 4, dtype=torch.int8), torch.ones(4))
    assert sizes_of(weight) == [16, 16]


@pytest.mark.filterwarnings("ignore")
def test_sparse_gradients_have_indices_and_values():
    table = torch.nn.Embedding(10, 4, sparse=True)
    table(torch.tensor([1, 2, 5])).sum().backward()
    assert sizes_of(table.weight.grad) == [3 * 8, 3 * 4 * 4]
    assert len(sizes_of(torch.eye(4).to_sparse_csr())) == 3


def test_a_tensor_inside_vmap_and_grad_is_the_one_outside():
    seen = []

    def loss(x):
        seen.extend(sizes_of(x))
        return x.sum()

    torch.func.vmap(torch.func.grad(loss))(torch.zeros(3, 5))
    assert seen == [60]


def test_what_has_no_memory_yields_nothing():
    assert sizes_of(torch.zeros(3, device="meta")) == []
    assert sizes_of(object()) == []
    assert len(list(with_memory(torch, torch.zeros(3)))) == 1
