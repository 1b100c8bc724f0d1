// What is known of the bytes on the device.
//
// The rule: what the program wrote itself is known, and stays known while nothing that might compute touches it; for all else see
// made_up.h. In detail:
//
//   * A copy from the host and a memset make their bytes known; a copy on the device makes them as known as its source.
//   * A kernel or a library call makes unknown, for each device pointer among its arguments, all from there to the end of the block:
//     it is not known which of them it writes. (Kernels whose parameters are known by name write only their outputs; one that fills
//     leaves its constant. See kernels.cpp.)
//     Where memdiag says what the operator writes, nothing else is taken to be written (computed.cpp).
//   * A block that the allocator hands out or takes back is unknown: nobody ever reads what an earlier tensor left there.
//   * Replaying a graph does all that again.
//
// Blocks are PyTorch's own: its allocator reports each to the profiler through a function that we stand before (blocks.cpp). Memory
// that did not come from it ends where the range of cudaMalloc ends.
//
// Bytes that are all alike take no memory, others are kept on the host up to MEMDIAG_PHANTOM_VALUES_BYTES; beyond that the oldest
// large ones are forgotten.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "pieces.h"

namespace phantom {

void write_host(uint64_t device, const void* host, uint64_t bytes);
void write_pattern(uint64_t device, const void* pattern, unsigned pattern_bytes, uint64_t bytes);
void copy_device(uint64_t to, uint64_t from, uint64_t bytes);
bool read_known(void* host, uint64_t device, uint64_t bytes, int type = -1);  // made up where nothing is known: then false
bool is_known(uint64_t device, uint64_t bytes);

void forget(uint64_t device, uint64_t bytes);

// The same for the elements of a strided tensor. On the host, the values are contiguous. The gaps on the device are left alone.
bool read_pieces(void* host, const Strided& from);  // false if part of it is not known
void write_pieces(const Strided& to, const void* host);
void forget_pieces(const Strided& of);

void touch(uint64_t device);  // something may write from here to the end of the block
void touch_words(const uint64_t* words, size_t num_words);  // each that looks like a device pointer

void begin_block(uint64_t device, uint64_t bytes);
void end_block(uint64_t device);
uint64_t block_end(uint64_t device);
uint64_t next_block();  // the number of the block that is handed out next

void copy_any(void* to, const void* from, uint64_t bytes);  // between host and device, by where the pointers point
void set_any(void* to, const void* pattern, unsigned pattern_bytes, uint64_t bytes);

uint64_t forgotten_bytes();  // that were known, and of which there were too many to be kept

}  // namespace phantom
