// Whether a process that is not our child still runs.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "tessera/base/files.h"

namespace tessera {

// An orphan that has ended stays in the list as a zombie until somebody asks for its exit code.
inline bool is_running(int id) {
  const std::string status = try_read_file("/proc/" + std::to_string(id) + "/stat").value_or("");
  return !status.empty() && status.find(") Z ") == std::string::npos;
}

inline bool ends_soon(int id) {
  constexpr int kLooks = 1000;
  for (int i = 0; i < kLooks && is_running(id); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return id > 0 && !is_running(id);
}

// The number in a file that another process writes; 0 if it never does.
inline int id_in(const fs::path& file) {
  constexpr int kLooks = 1000;
  std::string id;
  for (int i = 0; i < kLooks && id.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    id = try_read_file(file).value_or("");
  }
  return id.empty() ? 0 : std::stoi(id);
}

}  // namespace tessera
