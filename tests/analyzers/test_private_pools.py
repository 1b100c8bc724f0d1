"""MD142 names the private pools of CUDA graphs, MemPools and sleep modes, and where the program fills them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memdiag.analyzers import private_pools
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from memdiag.trace.recorded import MARK, ProcessMarks
from memdiag.trace.stacks import Frame
from tests.analyzers.heaps import MIB, Heap

GOLDENS = Path(__file__).parents[1] / "goldens"
GRAPH, OTHER, POOL, DEFAULT = (1, 0), (2, 0), (0, 3), (0, 0)


class Pools(Heap):
    """A heap whose entries have a pool, and frames with files."""

    def __init__(self):
        super().__init__()
        self.pools = []

    def tensor(self, at, size, pool, *frames):
        """Reserves a segment in a pool and fills it; frames are ``file:line name``, innermost first."""
        self.segment(at, size)
        self.alloc(at, size)
        parts = [frame.split(" ") for frame in frames]
        made = tuple(Frame(place.split(":")[0], int(place.split(":")[1]), name) for place, name in parts)
        self.entries[-1] = (*self.entries[-1][:4], made)
        self.pools += [pool, pool]

    def found(self):
        return list(private_pools.analyze(self.trace(pools=self.pools), Context()))


def program():
    """Returns the heap of a program with two graphs, a MemPool and a model."""
    heap = Pools()
    heap.tensor(0, 800 * MIB, DEFAULT, "model.py:5 __init__", "train.py:3 <module>")
    heap.tensor(1000, 300 * MIB, GRAPH, "model.py:31 forward", "serve.py:41 capture", "serve.py:90 main")
    heap.tensor(2000, 200 * MIB, GRAPH, "model.py:35 forward", "serve.py:42 capture", "serve.py:90 main")
    heap.tensor(3000, 100 * MIB, OTHER, "model.py:31 forward", "serve.py:41 capture", "serve.py:90 main")
    heap.tensor(4000, 70 * MIB, POOL, "cache.py:8 reserve", "serve.py:70 main")
    return heap


def found():
    """Returns the findings on that program."""
    return program().found()


def rows(finding):
    return {evidence.what: (evidence.value, evidence.where) for evidence in finding.evidence}


def test_each_pool_is_named_with_its_bytes_and_its_place():
    (finding,) = found()
    assert finding.title == "3 private pools hold 670.00 MiB (46% of reserved memory)"
    assert rows(finding)["CUDA graphs, pool (1, 0)"][0] == 500 * MIB
    assert "filled at serve.py:41 capture" in rows(finding)["CUDA graphs, pool (1, 0)"][1]
    assert "500.00 MiB in use, 2 segments" in rows(finding)["CUDA graphs, pool (1, 0)"][1]
    assert rows(finding)["MemPool or shared pool of graphs (0, 3)"][0] == 70 * MIB
    assert finding.severity == "warning"
    assert finding.fixes[0].change == "torch.cuda.graph(graph, pool=first.pool())"


def test_little_memory_is_no_finding():
    heap = Pools()
    heap.tensor(0, 800 * MIB, DEFAULT, "model.py:5 __init__")
    heap.tensor(1000, 60 * MIB, GRAPH, "model.py:31 forward")
    assert not heap.found()


@pytest.mark.parametrize(
    ("pool", "file", "name"),
    [
        (POOL, "torch_memory_saver/entrypoint.py:3 region", "torch_memory_saver, pool (0, 3)"),
        (POOL, "vllm/worker/cache_engine.py:83 allocate", "CuMemAllocator of vLLM (sleep mode), pool (0, 3)"),
        (POOL, "vllm/worker/gpu_worker.py:83 capture_model", "CUDA graphs, pool (0, 3)"),
        (POOL, "torch/_inductor/cudagraph_trees.py:9 run", "CUDA graphs of torch.compile, pool (0, 3)"),
        (POOL, "sglang/model_executor/cuda_graph_runner.py:9 run", "CUDA graphs, pool (0, 3)"),
        (POOL, "cache.py:9 reserve", "MemPool or shared pool of graphs (0, 3)"),
        (GRAPH, "model.py:9 forward", "CUDA graphs, pool (1, 0)"),
    ],
)
def test_programs_are_recognised_by_their_frames(pool, file, name):
    heap = Pools()
    heap.tensor(0, 100 * MIB, pool, f"/x/site-packages/{file}", "serve.py:70 main")
    (finding,) = heap.found()
    assert name in rows(finding)


def test_free_memory_that_only_one_pool_can_use_is_a_warning():
    heap = program()
    heap.tensor(6000, 9000 * MIB, DEFAULT, "model.py:5 __init__")
    (finding,) = heap.found()
    assert finding.severity == "info"
    heap.tensor(20_000, 3000 * MIB, POOL, "cache.py:8 reserve", "serve.py:70 main")
    heap.free(20_000, 3000 * MIB)
    heap.pools += [POOL, POOL]
    (finding,) = private_pools.analyze(heap.trace(pools=heap.pools), Context("end"))
    assert finding.severity == "warning"
    assert rows(finding)["free memory in these pools, which only the same graph or pool can use"][0] == 3000 * MIB


def test_real_allocators_number_pools_of_graphs_and_mempools(monkeypatch):
    monkeypatch.setattr(private_pools, "FLOOR", MIB)
    (graph,) = private_pools.analyze(load(GOLDENS / "cuda-2.13.0-graphs" / "snapshot.pickle"), Context())
    assert rows(graph)["CUDA graphs, pool (1, 0)"][0] == 48 * MIB
    assert "record.py:227 graphs" in rows(graph)["CUDA graphs, pool (1, 0)"][1]
    (pools,) = private_pools.analyze(load(GOLDENS / "cuda-2.13.0-pools" / "snapshot.pickle"), Context())
    assert [key for key in rows(pools) if key.startswith("MemPool")] == [
        "MemPool or shared pool of graphs (0, 1)",
        "MemPool or shared pool of graphs (0, 2)",
    ]
    assert "record.py:212 pools" in rows(pools)["MemPool or shared pool of graphs (0, 1)"][1]


def test_traces_without_private_pools_have_no_finding():
    trace = load(GOLDENS / "cuda-2.13.0-train" / "snapshot.pickle")
    assert not list(private_pools.analyze(trace, Context()))
    assert np.all(trace.devices[0].groups.pool_major == 0)


def engine(*marks):
    """Returns the trace of an engine that captures graphs in one pool after its peak; marks are (event, name)."""
    heap = Pools()
    heap.tensor(0, 900 * MIB, DEFAULT, "/x/vllm/runner.py:5 profile_run")
    heap.free(0, 900 * MIB)
    heap.pools += [DEFAULT, DEFAULT]
    for at, size in ((2000, 80), (3000, 40), (4000, 20)):
        heap.tensor(at, size * MIB, POOL, "/x/vllm/graphs.py:9 capture", "serve.py:90 main")
    names = tuple(name for _, name in marks)
    allocs = [sum(entry[0] == "alloc" for entry in heap.entries[:event]) for event, _ in marks]
    columns = {
        "time_ns": np.array([heap.times[event - 1] * 1000 + 500 for event, _ in marks]),
        "kind": np.full(len(marks), MARK),
        "value": np.arange(len(marks)),
        "device": np.zeros(len(marks), np.int64),
        "allocs": np.array(allocs),
        "frees": np.array([sum(entry[0] == "free_completed" for entry in heap.entries[:event]) for event, _ in marks]),
    }
    recorded = ProcessMarks(names, columns, {}, {}, {0: (4, 1)})
    return replace(heap.trace(pools=heap.pools), recorded=recorded)


def sizes(*marks):
    """Returns the memory that was reserved for each batch size, in MiB."""
    (finding,) = private_pools.analyze(engine(*marks), Context())
    return {key: value // MIB for key, (value, _) in rows(finding).items() if "graphs of" in key}


def test_memory_of_graphs_is_listed_by_the_captured_batch_size():
    marks = ((4, "graph capture: 8 tokens, FULL"), (6, "graph capture: 4 tokens, FULL"))
    assert sizes(*marks) == {
        "reserved while graphs of 8 tokens were captured": 80,
        "reserved while graphs of 4 tokens were captured": 60,
    }


def test_the_pools_are_those_after_the_last_capture():
    (finding,) = private_pools.analyze(engine((4, "graph capture: 8 requests")), Context())
    assert finding.title.startswith("1 private pool holds 140.00 MiB")


def test_a_capture_of_unknown_size_is_not_counted_for_the_size_before():
    marks = ((4, "graph capture: 8 requests"), (6, "graph capture: unknown size"), (8, "graph capture: 1 requests"))
    assert sizes(*marks) == {
        "reserved while graphs of 8 requests were captured": 80,
        "reserved while graphs of 1 request were captured": 20,
    }


def test_an_engine_whose_trace_has_no_batch_sizes_gets_a_note():
    heap = Pools()
    heap.tensor(0, 900 * MIB, POOL, "/x/vllm/graphs.py:9 capture", "serve.py:90 main")
    (finding,) = heap.found()
    assert rows(finding)["captured batch sizes"][0].startswith("unknown")


PAGE_EXAMPLES = {
    "MD142": found,
}
