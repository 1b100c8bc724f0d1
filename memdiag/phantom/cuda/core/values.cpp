#include "values.h"

#include <string.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "computed.h"
#include "made_up.h"
#include "memory.h"
#include "read_backs.h"

namespace phantom {
namespace {

constexpr uint64_t kSmall = 64 << 10;  // pieces up to here are never forgotten for want of room: they are what steers programs
constexpr uint64_t kIndirect = 64 << 10;  // tables of pointers on the device that are looked into

// Bytes that several pieces may share. A pattern (1, 2, 4 or 8 bytes, repeated) stands for any number of them.
struct Bytes {
  std::vector<char> data;
  bool is_pattern = false;
  char at(uint64_t i) const { return is_pattern ? data[i % data.size()] : data[i]; }
};
struct Piece {
  uint64_t bytes, offset;
  std::shared_ptr<Bytes> content;
};

struct Block {
  uint64_t end, number;
};

struct Values {
  std::mutex mutex;
  std::map<uint64_t, Piece> pieces;  // do not overlap
  std::map<uint64_t, Block> blocks;  // by their beginnings
  uint64_t num_blocks = 0;           // that there have been
  std::deque<std::pair<uint64_t, std::weak_ptr<Bytes>>> large;  // in order of age, with an address in case it is still there
  uint64_t large_bytes = 0;
  uint64_t forgotten_bytes = 0;
};

Values& values() {
  static Values* const all = new Values;
  return *all;
}

void take_away(Values& all, uint64_t begin, uint64_t bytes) {
  if (all.pieces.empty() || !bytes) return;
  uint64_t end = begin + bytes;
  auto piece = all.pieces.upper_bound(begin);
  if (piece != all.pieces.begin()) --piece;
  while (piece != all.pieces.end() && piece->first < end) {
    uint64_t first = piece->first, last = first + piece->second.bytes;
    if (last <= begin) {
      ++piece;
      continue;
    }
    Piece old = piece->second;
    piece = all.pieces.erase(piece);
    if (first < begin) all.pieces[first] = {begin - first, old.offset, old.content};
    if (last > end) piece = std::next(all.pieces.emplace(end, Piece{last - end, old.offset + (end - first), old.content}).first);
  }
}

bool is_uniform(const char* data, uint64_t bytes) { return bytes < 2 || memcmp(data, data + 1, bytes - 1) == 0; }

void make_room(Values& all) {
  while (all.large_bytes > config().values_bytes && !all.large.empty()) {
    std::shared_ptr<Bytes> oldest = all.large.front().second.lock();
    all.large.pop_front();
    if (!oldest) continue;
    for (auto piece = all.pieces.begin(); piece != all.pieces.end();)
      piece = piece->second.content == oldest ? all.pieces.erase(piece) : std::next(piece);
    all.forgotten_bytes += oldest->data.size();
  }
}

// Null if there are too many to be kept.
std::shared_ptr<Bytes> content_of(Values& all, uint64_t device, const char* data, uint64_t bytes) {
  Values* counted = &all;
  std::shared_ptr<Bytes> content;
  if (is_uniform(data, bytes)) {
    content = std::make_shared<Bytes>();
    content->is_pattern = true;
    content->data.assign(data, data + 1);
  } else if (bytes <= kSmall) {
    content = std::make_shared<Bytes>();
    content->data.assign(data, data + bytes);
  } else {
    if (bytes > config().values_bytes) {
      all.forgotten_bytes += bytes;
      return nullptr;
    }
    content = std::shared_ptr<Bytes>(new Bytes, [counted](Bytes* gone) {  // under the lock: pieces are only dropped there
      counted->large_bytes -= gone->data.size();
      delete gone;
    });
    content->data.assign(data, data + bytes);
    all.large_bytes += bytes;
    all.large.emplace_back(device, content);
  }
  return content;
}

void keep(Values& all, uint64_t device, const char* data, uint64_t bytes) {
  take_away(all, device, bytes);
  std::shared_ptr<Bytes> content = content_of(all, device, data, bytes);
  if (content) all.pieces[device] = {bytes, 0, content};
  make_room(all);
}

void copy_out(const Piece& piece, uint64_t skip, char* to, uint64_t bytes) {
  const Bytes& from = *piece.content;
  uint64_t start = piece.offset + skip;
  if (!from.is_pattern) memcpy(to, from.data.data() + start, bytes);
  else if (from.data.size() == 1) memset(to, from.data[0], bytes);
  else
    for (uint64_t i = 0; i < bytes; i++) to[i] = from.at(start + i);
}

// Calls `use(piece's address, piece, first, last)` for what is known of [begin, end).
template <class Use>
void each_known(Values& all, uint64_t begin, uint64_t end, Use use) {
  auto piece = all.pieces.upper_bound(begin);
  if (piece != all.pieces.begin()) --piece;
  for (; piece != all.pieces.end() && piece->first < end; ++piece) {
    uint64_t first = std::max(begin, piece->first), last = std::min(end, piece->first + piece->second.bytes);
    if (first < last) use(piece->first, piece->second, first, last);
  }
}

bool is_all_known(Values& all, uint64_t device, uint64_t bytes) {
  uint64_t known = 0;
  each_known(all, device, device + bytes, [&](uint64_t, const Piece&, uint64_t first, uint64_t last) { known += last - first; });
  return known == bytes;
}

void read_all(Values& all, char* host, uint64_t device, uint64_t bytes) {
  each_known(all, device, device + bytes, [&](uint64_t at, const Piece& piece, uint64_t first, uint64_t last) {
    copy_out(piece, first - at, host + (first - device), last - first);
  });
}

Block block_of(Values& all, uint64_t device) {
  auto after = all.blocks.upper_bound(device);
  if (after != all.blocks.begin()) {
    auto block = std::prev(after);
    if (device < block->second.end) return block->second;
  }
  return {0, 0};
}

// What a kernel may write of [begin, end) is not known any more; of what is no block of PyTorch's own the number is 0.
void forget_written(Values& all, uint64_t begin, uint64_t end, uint64_t number) {
  if (!is_within_operator() || (number && made_by_operator(number))) return take_away(all, begin, end - begin);
  for (const auto& span : written_by_operator(begin, end)) take_away(all, span.first, span.second - span.first);
}

void touch_locked(Values& all, uint64_t device, bool is_direct) {
  auto [end, number] = block_of(all, device);
  if (!end) return;
  if (is_direct && !all.pieces.empty()) {  // a table of pointers that the program made: what they point to may be written as well
    std::vector<uint64_t> inside;
    each_known(all, device, std::min(end, device + kIndirect), [&](uint64_t at, const Piece& piece, uint64_t first, uint64_t last) {
      if (piece.content->is_pattern) return;
      std::vector<uint64_t> words((last - first) / 8);
      copy_out(piece, first - at, reinterpret_cast<char*>(words.data()), words.size() * 8);
      for (uint64_t word : words)
        if (is_device(word)) inside.push_back(word);
    });
    for (uint64_t word : inside) touch_locked(all, word, false);
  }
  forget_written(all, device, end, number);
}

}  // namespace

void write_host(uint64_t device, const void* host, uint64_t bytes) {
  if (!bytes) return;
  Values& all = values();
  Lock lock(all.mutex);
  keep(all, device, static_cast<const char*>(host), bytes);
}

void write_pattern(uint64_t device, const void* pattern, unsigned pattern_bytes, uint64_t bytes) {
  if (!bytes) return;
  Values& all = values();
  Lock lock(all.mutex);
  take_away(all, device, bytes);
  auto content = std::make_shared<Bytes>();
  content->is_pattern = true;
  const char* first = static_cast<const char*>(pattern);
  content->data.assign(first, first + (is_uniform(first, pattern_bytes) ? 1 : pattern_bytes));
  all.pieces[device] = {bytes, 0, content};
}

void copy_device(uint64_t to, uint64_t from, uint64_t bytes) {
  Values& all = values();
  Lock lock(all.mutex);
  std::vector<std::pair<uint64_t, Piece>> known;
  each_known(all, from, from + bytes, [&](uint64_t at, const Piece& piece, uint64_t first, uint64_t last) {
    known.push_back({to + (first - from), {last - first, piece.offset + (first - at), piece.content}});
  });
  take_away(all, to, bytes);
  for (auto& piece : known) all.pieces[piece.first] = piece.second;
}

bool read_known(void* host, uint64_t device, uint64_t bytes, int type) {
  Values& all = values();
  Lock lock(all.mutex);
  bool is_all = is_all_known(all, device, bytes);
  if (!is_all) make_up(host, bytes, type);
  read_all(all, static_cast<char*>(host), device, bytes);
  // who reads chance twice gets the same
  if (!is_all && config().values == MadeUp::kRandom && bytes <= kSmall) keep(all, device, static_cast<const char*>(host), bytes);
  return is_all;
}

bool is_known(uint64_t device, uint64_t bytes) {
  Values& all = values();
  Lock lock(all.mutex);
  return is_all_known(all, device, bytes);
}

void forget(uint64_t device, uint64_t bytes) {
  Values& all = values();
  Lock lock(all.mutex);
  take_away(all, device, bytes);
}

bool read_pieces(void* host, const Strided& from) {
  Values& all = values();
  Lock lock(all.mutex);
  char* to = static_cast<char*>(host);
  return each_piece(from, [&](uint64_t device, uint64_t bytes) {
    if (!is_all_known(all, device, bytes)) return false;
    read_all(all, to, device, bytes);
    to += bytes;
    return true;
  });
}

void write_pieces(const Strided& to, const void* host) {
  Values& all = values();
  Lock lock(all.mutex);
  uint64_t bytes = to.each, done = 0;
  for (uint64_t i = 0; i < to.dims; i++) bytes *= to.sizes[i];
  std::shared_ptr<Bytes> content = content_of(all, to.begin, static_cast<const char*>(host), bytes);  // one for all pieces
  each_piece(to, [&](uint64_t device, uint64_t length) {
    take_away(all, device, length);
    if (content) all.pieces[device] = {length, done, content};
    done += length;
    return true;
  });
  make_room(all);
}

void forget_pieces(const Strided& of) {
  Values& all = values();
  Lock lock(all.mutex);
  each_piece(of, [&](uint64_t device, uint64_t bytes) {
    take_away(all, device, bytes);
    return true;
  });
}

void touch(uint64_t device) { touch_words(&device, 1); }

void touch_words(const uint64_t* words, size_t num_words) {
  Values& all = values();
  for (size_t i = 0; i < num_words; i++) {
    if (!is_device(words[i])) continue;
    uint64_t end = 0;
    {
      Lock lock(all.mutex);
      if (all.pieces.empty()) return;
      if (block_of(all, words[i]).end) {
        touch_locked(all, words[i], true);
        continue;
      }
    }
    {
      Lock lock(memory().mutex);
      auto range = memory().find(words[i]);
      if (range != memory().ranges.end()) end = range->first + range->second.bytes;
    }
    if (!end) continue;
    Lock lock(all.mutex);
    forget_written(all, words[i], end, 0);
  }
}

void begin_block(uint64_t device, uint64_t bytes) {
  Values& all = values();
  Lock lock(all.mutex);
  take_away(all, device, bytes);
  all.blocks[device] = {device + bytes, ++all.num_blocks};
}

void end_block(uint64_t device) {
  Values& all = values();
  Lock lock(all.mutex);
  auto block = all.blocks.find(device);
  if (block == all.blocks.end()) return;
  take_away(all, device, block->second.end - device);
  all.blocks.erase(block);
}

uint64_t block_end(uint64_t device) {
  Values& all = values();
  Lock lock(all.mutex);
  return block_of(all, device).end;
}

uint64_t next_block() {
  Values& all = values();
  Lock lock(all.mutex);
  return all.num_blocks + 1;
}

void copy_any(void* to, const void* from, uint64_t bytes) {
  if (is_device(to) && is_device(from)) copy_device(number(to), number(from), bytes);
  else if (is_device(to)) write_host(number(to), from, bytes);
  else if (is_device(from)) read_back(to, number(from), bytes);
  else memmove(to, from, bytes);
}

void set_any(void* to, const void* pattern, unsigned pattern_bytes, uint64_t bytes) {
  if (is_device(to)) return write_pattern(number(to), pattern, pattern_bytes, bytes);
  char* target = static_cast<char*>(to);
  for (uint64_t i = 0; i < bytes; i++) target[i] = static_cast<const char*>(pattern)[i % pattern_bytes];
}

uint64_t forgotten_bytes() {
  Values& all = values();
  Lock lock(all.mutex);
  return all.forgotten_bytes;
}

}  // namespace phantom
