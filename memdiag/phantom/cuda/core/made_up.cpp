#include "made_up.h"

#include <string.h>

#include <atomic>

#include "config.h"

namespace phantom {
namespace {

enum class Sort { kInteger, kBool, kFloat, kComplex };

struct Type {
  unsigned bytes;
  Sort sort;
  uint64_t one;       // 1 in its bits
  uint64_t half;      // 0.5: to these bits those of `fraction` may be added, and it stays below 1
  unsigned fraction;  // bits
};

// In the order of c10::ScalarType; 12 to 22 and from 30 on are quantised and packed types, of which nothing is known.
constexpr Type kInt1{1, Sort::kInteger, 1, 0, 1}, kInt2{2, Sort::kInteger, 1, 0, 1}, kInt4{4, Sort::kInteger, 1, 0, 1},
    kInt8{8, Sort::kInteger, 1, 0, 1}, kHalf{2, Sort::kFloat, 0x3c00, 0x3800, 10}, kFloat{4, Sort::kFloat, 0x3f800000, 0x3f000000, 23},
    kDouble{8, Sort::kFloat, 0x3ff0000000000000, 0x3fe0000000000000, 52}, kNone{0, Sort::kInteger, 0, 0, 0},
    kBoolean{1, Sort::kBool, 1, 0, 1}, kBrain{2, Sort::kFloat, 0x3f80, 0x3f00, 7}, kE5m2{1, Sort::kFloat, 0x3c, 0x38, 2},
    kE4m3{1, Sort::kFloat, 0x38, 0x30, 3}, kComplexFloat{8, Sort::kComplex, 0x3f800000, 0x3f000000, 23};
constexpr Type kTypes[] = {kInt1, kInt1, kInt2, kInt4, kInt8, kHalf, kFloat, kDouble, kNone, kComplexFloat, kNone, kBoolean, kNone, kNone, kNone,
                           kBrain, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kE5m2, kE4m3, kNone, kNone, kInt2, kInt4, kInt8};

const Type& type_of(int type) { return type >= 0 && type < static_cast<int>(sizeof kTypes / sizeof *kTypes) ? kTypes[type] : kNone; }

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t element(const Type& type, uint64_t draw) {
  switch (config().values) {
    case MadeUp::kOnes: return type.one;
    case MadeUp::kFinite: return type.sort == Sort::kFloat || type.sort == Sort::kComplex ? type.one : 0;
    case MadeUp::kRandom: return type.half | (draw & ((uint64_t{1} << type.fraction) - 1));
    default: return 0;
  }
}

}  // namespace

unsigned type_bytes(int type) { return type_of(type).bytes; }

void make_up(void* to, uint64_t bytes, int type) {
  static std::atomic<uint64_t> draws{0};
  const Type& own = type_of(type);
  memset(to, 0, bytes);
  if (config().values == MadeUp::kZeros || !own.bytes) return;
  uint64_t seed = mix(draws++);
  for (uint64_t at = 0; at + own.bytes <= bytes; at += own.bytes) {
    uint64_t value = element(own, mix(seed + at));
    memcpy(static_cast<char*>(to) + at, &value, own.bytes);
  }
}

}  // namespace phantom
