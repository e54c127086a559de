// What the registry's tests share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/registry/registry.h"

namespace tessera {

// The sentence that `work` throws, whose code must be `code`.
inline std::string message_of(const std::function<void()>& work, ErrorCode code) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    return error.what();
  }
  return "no error";
}

inline std::vector<std::string> names_of(const std::vector<KernelSpec>& specs) {
  std::vector<std::string> names;
  for (const KernelSpec& spec : specs) names.push_back(name_of(spec));
  return names;
}

// A folder that is gone at the end of the test.
struct TemporaryFolder {
  fs::path path = make_unique_folder(fs::temp_directory_path(), "tessera-registry-");
  ~TemporaryFolder() { remove_tree(path); }
};

// Every file below a folder, with its content.
inline std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
    }
  }
  return files;
}

// Options that never compile and keep their cache in `folder`.
inline jit::BuildOptions without_compiler(const fs::path& folder) {
  jit::BuildOptions options;
  options.cache.folder = folder / "cache";
  options.allow_compile = false;
  return options;
}

}  // namespace tessera
