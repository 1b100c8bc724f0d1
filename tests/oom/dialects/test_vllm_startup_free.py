from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tests.oom.message_forms import Form, Slot, fraction, integer
from tests.oom.single import commands, single


def _gib(name):
    return Slot(
        f"{name}_bytes", st.floats(0.01, 200), "{:.2f}".format, lambda text, _value: round(float(text) * (1 << 30))
    )


_SIZES = {"free": _gib("free"), "total": _gib("total"), "wanted": _gib("requested"), "share": fraction("utilization")}
FORMS = [
    Form(
        "vllm_startup_free",
        "ValueError: Free memory on device ({free}/{total} GiB) on startup is less than desired GPU memory utilization "
        "({share}, {wanted} GiB). "
        "Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        _SIZES,
    ),
    Form(
        "vllm_startup_free",
        (
            "ValueError: Free memory on device cuda:{device} ({free}/{total} GiB) on startup is less than desired GPU "
            "memory utilization ({share}, {wanted} GiB)."
        ),
        {**_SIZES, "device": integer("device_index", 0, 15)},
    ),
]


@pytest.mark.parametrize(("free", "verdict", "share"), [("20.50", "limit", "0.85"), ("12.00", "other_process", "0.49")])
def test_the_memory_in_use_before_start_up_decides_the_verdict(free, verdict, share):
    text = (
        f"Free memory on device ({free}/24.00 GiB) on startup is less than desired GPU memory utilization (0.9, 21.60 "
        "GiB)."
    )
    assert single(text).judgement.verdict == verdict
    assert f"--gpu-memory-utilization {share}" in commands(text)
