from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form
from tests.oom.single import single

FORMS = [Form("bitsandbytes", "Error out of memory at line 391 in file /build/bitsandbytes/csrc/pythonInterface.c")]


def test_a_failure_of_managed_memory_points_to_a_paged_optimizer():
    message = single(
        "  0%|          | 0/80 [00:00<?, ?it/s]\nError out of memory at line 391 in file "
        "/build/bitsandbytes/csrc/pythonInterface.c"
    )
    assert (message.framework, message.judgement.verdict) == ("bitsandbytes", "unknown")
    assert "host" in message.judgement.alternatives
    assert "adamw_bnb_8bit" in message.findings[0].fixes[0].change


@pytest.mark.parametrize("path", [r"D:\a\build\csrc\ops.cu", "/home/me/bitsandbytes/csrc/ops.hip"])
def test_a_failure_in_a_kernel_file_is_device_capacity(path):
    message = single(f"Error out of memory at line 90 in file {path}")
    assert message.judgement.verdict == "capacity"
    assert "batch" in message.findings[0].fixes[0].title


def test_other_errors_of_the_macro_are_ignored():
    assert not read_text("Error invalid device function at line 90 in file /b/csrc/ops.cu").messages
