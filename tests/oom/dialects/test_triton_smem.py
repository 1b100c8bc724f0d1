from __future__ import annotations

import pytest

from tests.oom.message_forms import Form, whole_bytes
from tests.oom.single import single

_SIZES = {"requested": whole_bytes("requested", 1 << 20), "limit": whole_bytes("limit", 1 << 20)}
FORMS = [
    Form(
        "triton_smem",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: {requested}, Hardware limit: "
        "{limit}. Reducing block sizes or `num_stages` may help.",
        _SIZES,
    ),
    Form(
        "triton_smem",
        "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested {requested}, available: {limit}",
        _SIZES,
    ),
]


@pytest.mark.parametrize("resource", ["threads", "tensor memory", "registers"])
def test_limits_of_other_resources_have_no_sizes(resource):
    message = single(f"OutOfResources: out of resource: {resource}, Required: 2048, Hardware limit: 1024.")
    assert (message.fields, message.judgement.verdict) == ({}, "limit")


def test_hexadecimal_sizes_of_ptxas_are_read():
    message = single("ptxas error : Entry function 'k' uses too much shared data (0x1a000 bytes, 0xc000 max)")
    assert message.fields == {"requested_bytes": 0x1A000, "limit_bytes": 0xC000}


def test_inductor_names_the_kernel_in_place_of_shared_memory():
    message = single(
        "InductorError: RuntimeError: No valid triton configs. OutOfMemoryError: out of resource: "
        "triton_per_fused_sum_7 Required: 300000 Hardware limit:200000 Reducing block sizes or `num_stages` may help."
    )
    assert message.fields == {"requested_bytes": 300000, "limit_bytes": 200000}
