from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form
from tests.oom.single import single

FORMS = [Form("opencl", "pyopencl._cl.MemoryError: clEnqueueWriteBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE", {})]


@pytest.mark.parametrize(
    "text",
    [
        "pyopencl._cl.MemoryError: clEnqueueReadBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE",
        "pyopencl._cl.MemoryError: create_buffer failed: OUT_OF_RESOURCES",
        "OpenCL error: CL_MEM_OBJECT_ALLOCATION_FAILURE\nFailed enqueuing the kernel. src/filter.cpp:12",
        "clEnqueueNDRange(0): CL_MEM_OBJECT_ALLOCATION_FAILURE",
        "Error: Args::allocate:284 returned CL_MEM_OBJECT_ALLOCATION_FAILURE.",
    ],
)
def test_the_device_and_not_the_host_ran_out(text):
    message = single(text)
    assert (message.dialect, message.framework, message.judgement.verdict) == ("opencl", "opencl", "capacity")


def test_a_table_of_error_names_is_no_message():
    assert not read_text('case -4: return "CL_MEM_OBJECT_ALLOCATION_FAILURE";').messages
