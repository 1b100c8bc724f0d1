"""Lets one process be any rank of a simulated world without other ranks.

Process groups are PyTorch's own and run on the simulated NCCL (or HCCL), in which the other ranks have this rank's
data. The rest of the communication is simulated here: a store that never waits, since the other ranks' entries are
generated; barriers that return at once; objects of other ranks, which are copies of this rank's; and groups on the CPU,
which would otherwise try to connect.

Generated entries follow PyTorch's own keys. Any other key that the program requests from its store is "0".
"""

from __future__ import annotations

import atexit
import copy
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import Any

_WORLD = "MEMDIAG_PHANTOM_WORLD"
_COMPUTE = "MEMDIAG_PHANTOM_COMPUTE"
_SECONDS = 0.05

_UNIQUE_ID = b"\x07" * 128  # ncclUniqueId; nobody reads its bytes
_ROOT_INFO = b"\x07" * 4108  # HcclRootInfo, likewise


def begin() -> None:
    """Prepares the process; called before the program's first line."""
    # A backward pass leaves threads that are still dropping their last references. On a real device the program ends
    # much later. Here it may end before them, and then Python kills a thread in the middle, which aborts the process.
    atexit.register(_let_threads_end)
    engines = _part("memdiag_phantom_engines", "engines.py")
    validation = _part("memdiag_phantom_validation", "validation.py")
    prepared = {
        "torch._inductor.runtime.benchmarking": _time,
        "triton.testing": _time_triton,
        engines.GENERATION: engines.end_generation,
        "torch.autograd.graph": _settle,
        **dict.fromkeys(validation.CHECKS, validation.begin),
    }
    sys.meta_path.insert(0, _After(prepared))
    is_npu = "MEMDIAG_PHANTOM_NPU_TOTAL" in os.environ and find_spec("torch_npu") is not None
    if is_npu:
        sys.meta_path.insert(0, _After({"torch_npu": lambda _: _refuse_compiling()}))
    else:
        sys.meta_path.append(_Compiled({"flash_attn_2_cuda": "flash_attention.py"}))
        engines.choose_sampler()
        sys.meta_path.insert(
            0,
            _After(
                {
                    engines.RUNNER: engines.count_sampled,
                    engines.RUNTIME: engines.prefer_simulated,
                    engines.KERNELS: engines.compile_nothing,
                }
            ),
        )
    if os.environ.get(_COMPUTE) != "0":
        sys.meta_path.insert(
            0, _After({"torch_npu" if is_npu else "torch": lambda _: _compute("PrivateUse1" if is_npu else "CUDA")})
        )
    if os.environ.get(_WORLD):
        sys.meta_path.insert(
            0,
            _After(
                {
                    "torch.distributed.rendezvous": _replace_stores,
                    "torch.distributed.distributed_c10d": _replace_talk,
                    "torch.distributed.pipelining.stage": _replace_votes,
                    "torch.distributed._symmetric_memory": _share_with_nobody,
                    "deepspeed.runtime.zero.utils": _replace_checks,
                    "torch_npu": lambda _: _replace_groups(
                        sys.modules["torch.distributed.distributed_c10d"]
                    ),  # it sets its own there
                }
            ),
        )


def _let_threads_end() -> None:
    if "torch" in sys.modules:
        time.sleep(_SECONDS)


def _part(name: str, place: str) -> Any:
    """Loads another part of the boot code by its path, like this one."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), place)
    folders = [os.path.dirname(path)] if path.endswith("__init__.py") else None
    spec = spec_from_file_location(name, path, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compute(key: str) -> None:
    _part("memdiag_phantom_computing", os.path.join("computing", "__init__.py")).begin(sys.modules["torch"], key)


def _refuse_compiling() -> None:
    _part("memdiag_phantom_compiling", "compiling.py").begin(sys.modules["torch"])


def _settle(graph: Any) -> None:
    _part("memdiag_phantom_threads", "threads.py").begin(graph)


def _time(benchmarking: Any) -> None:
    _timing().begin(benchmarking)


def _time_triton(testing: Any) -> None:
    _timing().begin_triton(testing)


def _timing() -> Any:
    return sys.modules.get("memdiag_phantom_timing") or _part("memdiag_phantom_timing", "timing.py")


class _After(MetaPathFinder):
    """Calls back after a module was executed; finds nothing itself.

    Programs also search for modules that they import later or never (``importlib.util.find_spec("torch")``), so it
    forgets a module only when it was executed.
    """

    def __init__(self, then: dict[str, Callable[[Any], None]]) -> None:
        self._then = then
        self._searched: set[str] = set()

    # The signature is Python's.
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        if name not in self._then or name in self._searched:
            return None
        self._searched.add(name)
        try:
            spec = find_spec(name)
        finally:
            self._searched.discard(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            then = self._then.pop(name, None)
            if then:
                then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _Compiled(MetaPathFinder):
    """Finds stand-ins for compiled modules that are not installed: it is asked last."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002 - Python's signature
        place = self._places.get(name)
        here = os.path.dirname(os.path.abspath(__file__))
        return spec_from_file_location(name, os.path.join(here, place)) if place else None


_stores: list[Any] = []  # C++ keeps no reference to the Python part of a store


class _Answers:
    """Entries of a store, written by this rank or generated for the others.

    Its methods are called from C++ (torch.distributed.Store).
    """

    def __init__(self, world: int) -> None:
        super().__init__()
        self._values: dict[str, bytes] = {}
        self._world = world
        _stores.append(self)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        return self._values.get(key) or made_up(key)

    def add(self, key: str, amount: int) -> int:
        """Counts, and also for all other ranks, since ranks count each other in."""
        value = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(value).encode()
        return max(value, self._world)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:  # noqa: ARG002
        if key not in self._values:
            self.set(key, desired)
        return self._values[key]

    def append(self, key: str, value: Any) -> None:
        self._values[key] = self._values.get(key, b"") + (value.encode() if isinstance(value, str) else bytes(value))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        for key, value in zip(keys, values):
            self.set(key, value)

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        pass

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def set_timeout(self, timeout: Any) -> None:
        pass

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> Any:
        return self


def _replace_stores(rendezvous: Any) -> None:
    """Replaces every way to meet the other ranks by this simulated store."""
    store = type("PhantomStore", (_Answers, import_module("torch.distributed").Store), {})

    def create(host: str, port: int, rank: int, world_size: int, *_: Any, **__: Any) -> Any:  # noqa: ARG001
        return store(world_size)

    rendezvous._create_c10d_store = create


def made_up(key: str) -> bytes:
    """Returns the generated entry of another rank for a PyTorch key: the identity of a communicator, or "0"."""
    last = key.rpartition("/")[2]
    if "nccl" in key.lower() or last.partition(":")[0].isdigit():
        return _ROOT_INFO if "torch_npu" in sys.modules else _UNIQUE_ID
    if os.environ.get("MEMDIAG_PHANTOM_TRACE"):
        sys.stderr.write(f"memdiag: nobody wrote {key} into the store: it reads as 0\n")
    return b"0"


_sent_shapes: list[Any] = []  # what send_object_list last sent, if all of it are shapes


def recv_object_list(object_list: list[Any], src: int | None = None, *_: Any, **__: Any) -> int:
    """Receives the shapes that this rank sent last, or refuses.

    In a pipeline with several stages per rank, the first stage of a rank sends the shapes of its output before a later
    stage receives those of its input. Between two stages, all activations are assumed to have the same shapes. Other
    objects are unknown, since the sender does not do the same as this rank.
    """
    if len(object_list) == len(_sent_shapes):
        object_list[:] = copy.deepcopy(_sent_shapes)
        return src or 0
    text = (
        f"the phantom world cannot make up the objects that rank {src} would have sent to this one ({len(object_list)})"
    )
    raise RuntimeError(
        f"{text}; give this rank what it needs by itself (of a PipelineStage: input_args=… and output_args=…)"
    )


def _are_shapes(sent: Any) -> bool:
    """Returns whether an object consists of tensors without data (device meta), as stages of a pipeline send them."""
    if isinstance(sent, (list, tuple)):
        return len(sent) > 0 and all(map(_are_shapes, sent))
    return getattr(getattr(sent, "device", None), "type", "") == "meta"


def _replace_talk(c10d: Any) -> None:
    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:  # noqa: ARG001
        for rank in range(len(object_list)):
            object_list[rank] = copy.deepcopy(obj)

    def gather_object(obj: Any, object_gather_list: list[Any] | None = None, *_: Any, **__: Any) -> None:
        if object_gather_list is not None:
            all_gather_object(object_gather_list, obj)

    def broadcast_object_list(object_list: list[Any], *_: Any, **__: Any) -> None:
        """Receives nothing: the list is assumed to contain the source's objects."""

    def scatter_object_list(
        output: list[Any],
        inputs: list[Any] | None = None,
        src: Any = None,  # noqa: ARG001
        group: Any = None,
        **_: Any,
    ) -> None:
        if inputs:
            output[0] = inputs[c10d.get_rank(group)]

    def send_object_list(object_list: list[Any], *args: Any, **named: Any) -> Any:
        _sent_shapes[:] = copy.deepcopy(object_list) if _are_shapes(object_list) else []
        return send(object_list, *args, **named)

    send: Any = getattr(c10d, "send_object_list", None)
    for function in (
        all_gather_object,
        gather_object,
        broadcast_object_list,
        scatter_object_list,
        send_object_list,
        recv_object_list,
    ):
        if hasattr(c10d, function.__name__):
            setattr(c10d, function.__name__, function)
    c10d._store_based_barrier = lambda *_, **__: None
    c10d.monitored_barrier = lambda *_, **__: None
    _replace_groups(c10d)


def _replace_groups(c10d: Any) -> None:
    original = c10d._new_process_group_helper
    if getattr(original, "__module__", "") == __name__:
        return

    def new_group(group_size: int, group_rank: int, ranks: Any, backend: Any, *rest: Any, **named: Any) -> Any:
        """Makes groups on the CPU PyTorch's own fake groups: gloo would wait for the others."""
        import_module("torch.testing._internal.distributed.fake_pg")
        text = str(backend)
        device = "npu:hccl" if "torch_npu" in sys.modules else "cuda:nccl"
        if text in {"undefined", "None"}:
            text = f"cpu:fake,{device}"
        text = text.replace("gloo", "fake").replace("mpi", "fake")
        return original(group_size, group_rank, ranks, text if ":" in text else c10d.Backend(text), *rest, **named)

    c10d._new_process_group_helper = new_group


def _share_with_nobody(module: Any) -> None:
    _part("memdiag_phantom_symmetric", "symmetric.py").begin(module)


def _replace_checks(utils: Any) -> None:
    """Lets rank 0 have this rank's parameters in the same order.

    DeepSpeed's ZeRO-3 compares them with a broadcast, into which this rank has written -1.
    """

    def agreeing(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def function(given: Any) -> Any:
            try:
                original(given)  # for its allocations
            except RuntimeError as error:
                if type(error) is not RuntimeError:  # out of memory
                    raise
            return given

        return function

    for name in ("assert_lst_len_same_as_other_ranks", "get_lst_from_rank0"):
        if hasattr(utils, name):
            setattr(utils, name, agreeing(getattr(utils, name)))


def _replace_votes(stages: Any) -> None:
    """Lets the other pipeline stages vote like this one.

    Stages vote on whether all know the shapes that they receive.
    """
    stage = stages.PipelineStage
    if not hasattr(stage, "_warmup_forward_vote") or not hasattr(stages, "InferenceMode"):
        return  # versions of PyTorch without a vote

    def vote(self: Any, has_backward: bool, received_acc: Any = None) -> Any:  # noqa: ARG001
        is_known = not stages.InferenceMode.needs_dynamic(self._user_meta, has_backward)
        return stages.torch.tensor([int(is_known)], dtype=stages.torch.int32, device=self.device)

    stage._warmup_forward_vote = vote
    stage._warmup_backward_result = lambda _, received_result=None: received_result
