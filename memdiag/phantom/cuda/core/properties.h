// What the device says of itself: one list of figures behind every question of the runtime and the driver.
#pragma once
#include "abi.h"
#include "device_code.h"

namespace phantom {

int attribute(int which);  // by its number in cudaDeviceAttr, which CUdevice_attribute shares
void fill(DeviceProp& properties, int device);
void fill(FuncAttributes& attributes, CodeVersion code);
int occupancy();           // blocks of a kernel that a multiprocessor holds: changes no trace that we know of

}  // namespace phantom
