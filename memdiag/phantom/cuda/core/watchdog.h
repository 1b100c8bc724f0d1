// Keeps step with the thread in which PyTorch watches over NCCL.
#pragma once
#include "abi.h"

namespace phantom {

void note_collective(Stream stream);             // NCCL was given work on this stream
void note_recorded(Event event, Stream stream);  // the first event after it is the one that the watchdog asks for
void note_queried(Event event);
void note_destroyed(Event event);
void let_watchdog_see();

}  // namespace phantom
