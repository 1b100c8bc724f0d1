// What the stand-ins of the toolkit's libraries have in common.
//
// A function that computes is "called": all its arguments are looked at as words, since whichever is a device pointer may be written
// through, and it succeeds. Reading more words than were given is harmless: they are the caller's. A function that nobody imitates is
// "refused" (see recipe.py, which writes both kinds for whole libraries).
#pragma once
#include "../core/abi.h"
#include "../core/kernels.h"
#include "../core/memory.h"
#include "../core/refuse.h"

namespace phantom {

using Word = uint64_t;

// The handle of cuBLAS, cuSOLVER, cuSPARSE and cuDNN: they take it first.
struct Handle {
  Stream stream = nullptr;
  int math_mode = 0, pointer_mode = 0, sm_target = 0;
};

}  // namespace phantom

#define PHANTOM_WORDS                                                                                                              \
  phantom::Word a0, phantom::Word a1, phantom::Word a2, phantom::Word a3, phantom::Word a4, phantom::Word a5, phantom::Word a6,      \
      phantom::Word a7, phantom::Word a8, phantom::Word a9, phantom::Word a10, phantom::Word a11, phantom::Word a12,                \
      phantom::Word a13, phantom::Word a14, phantom::Word a15, phantom::Word a16, phantom::Word a17, phantom::Word a18,             \
      phantom::Word a19, phantom::Word a20, phantom::Word a21, phantom::Word a22, phantom::Word a23
#define PHANTOM_WORD_LIST \
  { a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23 }

// WEAK: the function gives way to one that is written out.
#define PHANTOM_WEAK extern "C" __attribute__((visibility("default"), weak))
#define PHANTOM_CALLED(name)                                                             \
  PHANTOM_WEAK int name(PHANTOM_WORDS) {                                                 \
    const phantom::Word words[] = PHANTOM_WORD_LIST;                                     \
    phantom::library_call(static_cast<phantom::Handle*>(phantom::pointer(a0))->stream, words, 24); \
    return 0;                                                                            \
  }
#define PHANTOM_REFUSED(library, name, error) \
  PHANTOM_WEAK int name() { return memdiag_phantom_refuse(library, #name, error); }
