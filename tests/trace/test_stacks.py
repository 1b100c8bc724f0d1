"""The label of a call stack, for which frames of the unwinder and the interpreter are skipped."""

from __future__ import annotations

import pytest

from memdiag.trace.names import _operation
from memdiag.trace.stacks import Frame, Stacks

UNWIND = Frame("??", 0, "torch::unwind::unwind()")
GATHER = Frame("memory_snapshot.cpp", 0, "torch::cuda::(anonymous namespace)::gather_with_cpp()")
EVAL = Frame("??", 0, "_PyEval_EvalFrameDefault")
MM = Frame("??", 0, "at::_ops::mm::redispatch(c10::DispatchKeySet)")
USER = Frame("/app/train.py", 3, "main")


def label(*frames):
    stacks, (number,) = Stacks.from_lists([frames])
    return stacks.label(int(number))


@pytest.mark.parametrize(
    "name",
    [
        "torch::unwind::unwind()",
        "_PyEval_EvalFrameDefault",
        "_PyFunction_Vectorcall",
        "PyObject_Call",
        "PyEval_EvalCode",
        "Py_BytesMain",
        "PyMethod_New",
        "cfunction_vectorcall_FASTCALL",
        "method_vectorcall",
        "slot_tp_call",
        "type_call",
        "object_vacall",
        "__libc_start_main",
        "__Pyx_PyObject_Call(_object*, _object*)",
        "__pyx_pw_3ray_7_raylet",
        "_start",
        "start_thread",
        "clone",
        "clone3",
        "__clone3",
        "std::_Function_handler<void ()>::_M_invoke(std::_Any_data const&)",
        "pybind11::cpp_function::dispatcher(_object*)",
        "??",
        "",
    ],
)
def test_frames_of_unwinder_and_interpreter_are_no_label(name):
    frame = Frame("??", 0, name)
    assert frame.is_machinery
    assert label(frame) == label(UNWIND, GATHER, frame) == ""
    assert label(UNWIND, GATHER, frame, MM) == "at::_ops::mm::redispatch"
    assert label(UNWIND, frame, MM, EVAL, USER) == "train.py:3 main"


@pytest.mark.parametrize(
    "name", ["aten::mm", "at::native::addmm_out_cuda_impl", "my_kernel(float*)", "python_free(void*)", "startup(int)"]
)
def test_other_cpp_functions_are_the_label(name):
    assert label(UNWIND, GATHER, Frame("??", 0, name), EVAL) == name.partition("(")[0]


@pytest.mark.parametrize("folder", ["/scratch/torchinductor_me", "/root/.cache/memdiag/phantom/inductor"])
def test_code_that_torch_compile_generates_is_no_code_of_the_user(folder):
    generated = Frame(f"{folder}/nj/cnjl4mwhuiipsyrchsrpp7n2qc3g6dl7uihcelsjjlszoms2mbbz.py", 689, "call")
    assert generated.is_compiled
    assert label(generated, USER) == "train.py:3 main"


@pytest.mark.parametrize(
    "router",
    [
        Frame("/env/site-packages/torch/_native/registry.py", 925, "eager_router"),
        Frame("/env/site-packages/torch/_ops.py", 1279, "__call__"),  # from autograd's thread, below vmap
    ],
)
def test_functions_that_only_call_a_kernel_are_no_label(router):
    functional = Frame("/env/site-packages/torch/nn/functional.py", 9, "linear")
    assert label(router) == ""  # in backward, which has no other Python frame
    assert label(router, functional) == "functional.py:9 linear"
    assert label(router, USER) == "train.py:3 main"
    stacks, _ = Stacks.from_lists([[router, functional, USER], [router, USER]])
    assert (_operation(stacks, 0), _operation(stacks, 1)) == ("linear", "")


def test_frames_of_user_and_pytorch_code_are_distinguished():
    linear, worker = (
        Frame("/env/site-packages/torch/nn/modules/linear.py", 9, "forward"),
        Frame("/env/dist-packages/vllm/worker.py", 9, "f"),
    )
    told = [(frame.is_user, frame.is_pytorch) for frame in (USER, EVAL, linear, worker)]
    assert told == [(True, False), (False, True), (False, True), (False, False)]


WINDOWS_USER = Frame("C:\\Users\\me\\code\\train.py", 3, "main")


@pytest.mark.parametrize(
    "library",
    [
        "C:\\Users\\me\\code\\.venv\\Lib\\site-packages\\torch\\nn\\modules\\module.py",
        "C:\\Users\\me\\AppData\\Local\\Programs\\Python\\Python312\\Lib\\contextlib.py",
        "C:\\ProgramData\\miniconda3\\envs\\train\\lib\\copy.py",
        "D:\\uv\\python\\cpython-3.10.19-windows-x86_64-none\\lib\\copy.py",
    ],
)
def test_paths_of_windows_are_read_like_others(library):
    assert label(Frame(library, 7, "forward"), WINDOWS_USER) == "train.py:3 main"


def test_a_stack_knows_whether_it_was_recorded_on_windows():
    assert Stacks.from_lists([[WINDOWS_USER]])[0].on_windows
    assert Stacks.from_lists([[Frame("src\\train.py", 3, "main")]])[0].frames[0].filename == "src/train.py"
    assert not Stacks.from_lists([[USER], [Frame("C:\\a\\b.cpp", 3, "f")]])[0].on_windows
