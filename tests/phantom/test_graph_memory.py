"""Executable graphs take memory of the driver on a simulated device, outside the allocator's pools."""

from tests.phantom.cuda_stand_in import needs_torch, run

CAPTURE = """
import sys
import torch

num_nodes = int(sys.argv[1])
x = torch.zeros(1, device="cuda")

def free():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()

def capture():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(num_nodes):
            x.add_(1)
    return graph

before = free()
graphs = [capture(), capture()]
after = free()
graphs[0].replay()
graphs.clear()
print((before - after) // 1024, (before - free()) // 1024)
"""


@needs_torch
def test_two_graphs_of_a_thousand_nodes_take_whole_pages_and_give_them_back(tmp_path):
    (tmp_path / "program.py").write_text(CAPTURE)
    kib = [int(size) for size in run(["program.py", 1000], tmp_path).stdout.split()]
    assert kib == [10 * 1024, 0]  # 2 x 1000 x 5 KiB, in pages of 2 MiB


@needs_torch
def test_the_size_of_a_node_can_be_set(tmp_path):
    (tmp_path / "program.py").write_text(CAPTURE)
    for size, expected in (("0", 0), ("64K", 2 * 64000 // 2048 * 2048 + 2048)):
        done = run(["program.py", 1000], tmp_path, MEMDIAG_PHANTOM_GRAPH_NODE_BYTES=size)
        assert int(done.stdout.split()[0]) == expected, done.stderr


@needs_torch
def test_a_full_device_fails_as_the_driver_does(tmp_path):
    (tmp_path / "program.py").write_text(CAPTURE)
    done = run(["program.py", 1000], tmp_path, "cuda:h100-80g,capacity=64MiB", MEMDIAG_PHANTOM_GRAPH_NODE_BYTES="64K")
    assert "capture_end" in done.stderr
    assert "CUDA error: out of memory" in done.stderr
