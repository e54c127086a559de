// Kernels that were loaded ahead from packs, by the names of their sources.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/fork.h"
#include "tessera/registry/registry.h"

namespace tessera {

// A kernel that several specs may share: a convolution may run the kernel of a product.
struct LoadedSource {
  std::string source_key;
  jit::Artifact artifact;
  std::shared_ptr<const runtime::LoadedKernel> loaded;
};

// Thread-safe.
class PreloadedKernels {
 public:
  bool has_name(const std::string& source_name) const;
  // The kernel of a source, if it was loaded ahead.
  std::optional<LoadedSource> find(const Source& source, const Target& target) const;
  void add(const std::string& source_name, LoadedSource kernel);

 private:
  mutable Mutex mutex_;
  std::map<std::string, LoadedSource, std::less<>> kernels_;
};

// What Registry::preload() does, for kernels of `target`, which this machine runs.
Preloaded preload_pack(const std::filesystem::path& pack, const Target& target,
                       const runtime::LaunchOptions& place, PreloadedKernels& kernels);

}  // namespace tessera
