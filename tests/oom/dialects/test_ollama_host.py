from __future__ import annotations

import pytest

from tests.oom.message_forms import GIB, Form, unit_size
from tests.oom.single import single

FORMS = [
    Form(
        "ollama_host",
        "Error: model requires more system memory ({requested}) than is available ({free})",
        {"requested": unit_size("requested", "{:.1f} GiB", GIB), "free": unit_size("free", "{:.1f} GiB", GIB)},
    ),
]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"error":"model requires more system memory (12.5 GiB) than is available (9.1 GiB)"}', "host"),
        ("llama runner process has terminated: signal: killed", "host"),
        ("memory layout cannot be allocated with num_gpu = 99", "limit"),
    ],
)
def test_the_wording_decides_between_host_and_limit(text, verdict):
    assert single(text).judgement.verdict == verdict


def test_all_numbers_of_the_server_log_are_read():
    message = single(
        'level=WARN msg="model request too large for system" requested="5.0 GiB" available=2147483648 total="16.0 GiB" '
        'free="2.0 GiB" swap="0 B"'
    )
    assert message.fields == {"requested_bytes": 5 * GIB, "total_bytes": 16 * GIB, "free_bytes": 2 * GIB}
