// Facts about NVIDIA's driver and GPUs that need no context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::runtime {

struct CudaDevice {
  std::string name;
  int major = 0;  // of the compute capability
  int minor = 0;
  int units = 0;
  std::int64_t memory_bytes = 0;
};

struct CudaInfo {
  std::string library;      // the driver's file
  std::string cuda;         // the CUDA version that it supports, "13.0"
  std::string unavailable;  // a sentence when nothing can run; empty otherwise
  std::vector<CudaDevice> devices;
};

// Initialises the driver, so a process that forks later cannot use the driver in the child.
CudaInfo cuda_info();

}  // namespace tessera::runtime
