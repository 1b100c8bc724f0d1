"""The fields of an out-of-memory message, as JSON has them."""

from __future__ import annotations

from typing import TypedDict


class MessageFields(TypedDict, total=False):
    """The numbers that a message prints; a number that is not printed has no key.

    Attributes:
        requested_bytes: Size of the failed request.
        total_bytes: Memory of the device.
        free_bytes: Free memory of the device.
        allocated_bytes: Bytes of blocks allocated to tensors.
        active_bytes: Allocated bytes, and freed bytes that wait for a stream.
        reserved_bytes: Bytes reserved by the allocator.
        unallocated_bytes: Bytes reserved but not allocated.
        cached_bytes: Bytes that old versions of PyTorch call cached: reserved, or reserved but not allocated.
        private_pool_bytes: Bytes allocated in private pools (CUDA graphs, MemPool).
        process_bytes: Memory of this process on the device, according to the driver.
        other_processes: Process id and bytes of each other process, if the message marks this process.
        processes: Process id and bytes of each process, if the message does not mark this process.
        limit_bytes: Limit of the process, pool, container or job.
        other_alloc_bytes: Bytes allocated outside the allocator (Apple's MPS).
        static_bytes: Static memory of a compiled program.
        program_bytes: Memory that a compiled program needs.
        total_vm_bytes: Address space of a process that Linux killed.
        anon_rss_bytes: Resident memory of a process that Linux killed.
        device_index: Index of the device.
        rank: Global rank.
        local_rank: Rank on its machine.
        pid: Process id in the message.
        log_pid: Process id in the prefix of the log line.
        shape: Shape of the tensor.
        dtype: Element type of the tensor.
        max_seq_len: Longest sequence of a serving engine.
        kv_tokens: Tokens that the key-value cache can hold.
        estimated_max_len: Longest sequence that fits, as the engine estimates.
        utilization: Fraction of the device that a serving engine may use.
        threshold: Fraction of memory at which Ray kills workers.
    """

    requested_bytes: int
    total_bytes: int
    free_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int
    unallocated_bytes: int
    cached_bytes: int
    private_pool_bytes: int
    process_bytes: int
    other_processes: list[list[int]]
    processes: list[list[int]]
    limit_bytes: int
    other_alloc_bytes: int
    static_bytes: int
    program_bytes: int
    total_vm_bytes: int
    anon_rss_bytes: int
    device_index: int
    rank: int
    local_rank: int
    pid: int
    log_pid: int
    shape: list[int]
    dtype: str
    max_seq_len: int
    kv_tokens: int
    estimated_max_len: int
    utilization: float
    threshold: float
