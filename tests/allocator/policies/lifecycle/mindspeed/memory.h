// The device's memory, and the wrapper around it that counts for the whole process (section 6, P2).
#pragma once

#include <map>
#include <optional>

#include "settings.h"

namespace mindspeed {

// Where segments come from: the runtime of the device, or plain counting.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual void* take(int device, Bytes size) = 0;  // nullptr: there is not enough
  virtual void give(int device, void* address, Bytes size) = 0;
  virtual Bytes free_bytes(int device) = 0;
  virtual Bytes total_bytes(int device) = 0;
};

// What the process holds, and what it could: both are of all devices together, so that several disturb each other.
class Wrapper {
 public:
  Wrapper(Driver& driver, const Settings& settings) : driver_(driver), most_held_(settings.most_held) {}

  // The 200 MiB pre-judgement: that the driver would have too little, as far as known from the last time it was asked.
  bool is_hopeless(Bytes size) const { return usable_ && held_ + size + PREJUDGED > *usable_; }

  void* take(int device, Bytes size) {
    bool is_allowed = size <= most_held_ && held_ <= most_held_ - size;  // ALR_MAX; otherwise the driver is not asked
    void* address = is_allowed ? driver_.take(device, size) : nullptr;
    if (address) held_ += size;
    usable_ = held_ + driver_.free_bytes(device);
    return address;
  }

  void give(int device, void* address, Bytes size) {
    driver_.give(device, address, size);
    held_ -= size;
  }

  Driver& driver() { return driver_; }

 private:
  Driver& driver_;
  Bytes most_held_;
  Bytes held_ = 0;               // alr_total
  std::optional<Bytes> usable_;  // usable_total
};

}  // namespace mindspeed
