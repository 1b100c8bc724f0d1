"""Calls the simulated Ascend runtime as torch_npu does, and prints the results as JSON: runtime.py LIBRARY."""

import ctypes
import json
import sys

acl = ctypes.CDLL(sys.argv[1])
MIB = 1 << 20
seen = {}


def pointer(function, *arguments):
    out = ctypes.c_void_p()
    return getattr(acl, function)(ctypes.byref(out), *arguments), out


def copy(to, from_, size, kind):
    return acl.aclrtMemcpy(to, ctypes.c_size_t(size), from_, ctypes.c_size_t(size), kind)


def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    acl.aclrtGetMemInfo(1, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


seen["devices"] = [acl.aclrtSetDevice(0), acl.aclrtSetDevice(2)]
seen["memory"] = info()
seen["one"], one = pointer("aclrtMalloc", ctypes.c_size_t(1), 0)
seen["after one byte"] = info()[0]
seen["too much"] = pointer("aclrtMalloc", ctypes.c_size_t(64 * MIB), 0)[0]
seen["much"], much = pointer("aclrtMallocAlign32", ctypes.c_size_t(30 * MIB), 0)
seen["addresses"] = [one.value, much.value]
text = ctypes.create_string_buffer(b"written by the host" * 10_000)
size = len(text)
back = ctypes.create_string_buffer(b"x" * size)
there = ctypes.c_void_p(much.value + 12_345)
seen["copies"] = [copy(there, text, size, 1), copy(back, there, size, 2), back.raw[:size] == text.raw]
seen["within the device"] = [
    copy(ctypes.c_void_p(much.value + 20 * MIB), there, size, 3),
    copy(back, ctypes.c_void_p(much.value + 20 * MIB), size, 2),
    back.raw[:size] == text.raw,
]
seen["past the end"] = copy(ctypes.c_void_p(much.value + 29 * MIB), ctypes.create_string_buffer(4 * MIB), 4 * MIB, 1)
seen["set"] = [
    acl.aclrtMemset(there, ctypes.c_size_t(4), 7, ctypes.c_size_t(4)),
    copy(back, there, 5, 2),
    list(back.raw[:5]),
]
seen["freed"] = [acl.aclrtFree(much), acl.aclrtFree(much), copy(back, there, 4, 2)]
seen["given back"] = info()[0]
seen["reserved"], area = pointer(
    "aclrtReserveMemAddress", ctypes.c_size_t(1 << 40), ctypes.c_size_t(0), None, ctypes.c_uint64(0)
)
seen["reserving is free"] = info()[0]
seen["physical"], handle = pointer("aclrtMallocPhysical", ctypes.c_size_t(20 * MIB), None, ctypes.c_uint64(0))
seen["mapped"] = acl.aclrtMapMem(area, ctypes.c_size_t(20 * MIB), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
seen["after mapping"] = info()[0]
copy(area, text, size, 1)
seen["unmapped"] = [acl.aclrtUnmapMem(area), acl.aclrtFreePhysical(handle), copy(back, area, 4, 2), list(back.raw[:4])]
seen["all back"] = info()[0]
acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
seen["refused"] = [
    acl.aclrtMemExportToShareableHandle(),
    acl.aclrtMemExportToShareableHandle(),
    acl.aclGetRecentErrMsg().decode(),
]
print(json.dumps(seen))
