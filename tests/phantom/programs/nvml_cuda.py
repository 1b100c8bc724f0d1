"""Prints what the management library states of the card's place: processors, NUMA node, and PCI address."""

import ctypes
import json
import os


class Pci(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "product", "subsystem")),
        ("id", ctypes.c_char * 32),
    ]


library = ctypes.CDLL("libnvidia-ml.so.1")
card, pci, node = ctypes.c_void_p(), Pci(), ctypes.c_int()
words = (ctypes.c_ulong * 16)()
statuses = [
    library.nvmlInit_v2(),
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)),
    library.nvmlDeviceGetCpuAffinity(card, len(words), words),
    library.nvmlDeviceGetPciInfo_v3(card, ctypes.byref(pci)),
    library.nvmlDeviceGetNumaNodeId(card, ctypes.byref(node)),
]
processors = {64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1}
print(
    json.dumps(
        {
            "statuses": statuses,
            "has the processors of this process": processors == os.sched_getaffinity(0),
            "ids": [pci.legacy.decode(), pci.id.decode()],
            "product": pci.product,
        }
    )
)
