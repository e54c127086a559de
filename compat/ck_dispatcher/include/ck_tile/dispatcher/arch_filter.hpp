// Whether a key's sizes are ones that an AMD target can have, by the original's rules. Tessera's
// own kernels are checked by the library when they are declared.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "ck_tile/dispatcher/arch_specs_generated.hpp"
#include "ck_tile/dispatcher/kernel_key.hpp"

namespace ck_tile::dispatcher {

using GpuArch = arch_specs::GpuArch;
using WarpConfig = arch_specs::WarpConfig;
using WarpTileConfig = std::array<int, 3>;
using arch_specs::arch_to_string;
using arch_specs::element_size;
using arch_specs::get_lds_capacity;
using arch_specs::get_lds_total_capacity;
using arch_specs::get_supported_warp_configs;
using arch_specs::is_trait_unsupported;
using arch_specs::string_to_arch;

// Empty where the table has no row for the types.
inline std::vector<WarpTileConfig> get_supported_warp_tiles(GpuArch arch, DataType a, DataType b,
                                                            DataType) {
  if (a == b && (a == DataType::FP16 || a == DataType::BF16)) {
    if (arch != GpuArch::GFX_1201) {
      return {{32, 32, 8}, {16, 16, 16}, {32, 32, 16}, {16, 16, 32}, {4, 64, 16}, {64, 4, 16}};
    }
    if (a == DataType::FP16) return {{16, 16, 16}};
  }
  if (a == DataType::FP8 || a == DataType::BF8) {
    std::vector<WarpTileConfig> all = {{32, 32, 16}, {32, 32, 32}};
    if (arch == GpuArch::GFX_90A) return all;
    for (const WarpTileConfig& one : {WarpTileConfig{16, 16, 32}, {16, 16, 64}}) all.push_back(one);
    if (arch == GpuArch::GFX_942) return all;
    for (const WarpTileConfig& one : {WarpTileConfig{16, 16, 128}, {32, 32, 64}})
      all.push_back(one);
    if (arch == GpuArch::GFX_950) return all;
  }
  if (a == DataType::INT8 && b == a && arch == GpuArch::GFX_942)
    return {{16, 16, 32}, {32, 32, 16}};
  return {};
}

struct ValidationResult {
  bool valid = true;
  std::vector<std::string> errors, warnings;

  explicit operator bool() const { return valid; }
  void add_error(const std::string& sentence) { errors.push_back(sentence), valid = false; }
  void add_warning(const std::string& sentence) { warnings.push_back(sentence); }
};

class ArchFilter {
 public:
  // strict: a target without a table of waves is an error instead of a warning.
  explicit ArchFilter(GpuArch arch, bool strict = false) : arch_(arch), strict_(strict) {}
  explicit ArchFilter(const std::string& arch, bool strict = false)
      : ArchFilter(string_to_arch(arch), strict) {}

  bool is_valid(const KernelKey& key) const { return validate(key).valid; }
  ValidationResult validate(const KernelKey& key) const {
    ValidationResult result;
    if (!key.gfx_arch.empty() && string_to_arch(key.gfx_arch) != arch_) {
      result.add_warning("the kernel is for " + key.gfx_arch + ", not for " + get_arch_string());
    }
    check_sizes(key, result);
    check_waves(key, result);
    check_warp_tiles(key, result);
    const KernelKey::Algorithm& a = key.algorithm;
    if (is_trait_unsupported(a.pipeline, a.epilogue, a.scheduler)) {
      result.add_error("the pipeline " + to_string(a.pipeline) + " has no scheduler " +
                       to_string(a.scheduler));
    }
    check_memory(key, result);
    return result;
  }
  GpuArch get_arch() const { return arch_; }
  std::string get_arch_string() const { return arch_to_string(arch_); }

 private:
  static void check_sizes(const KernelKey& key, ValidationResult& result) {
    const KernelKey::Algorithm& a = key.algorithm;
    const int tiles[] = {a.tile_shape.m, a.tile_shape.n, a.tile_shape.k};
    const int waves[] = {a.wave_shape.m * a.warp_tile_shape.m, a.wave_shape.n * a.warp_tile_shape.n,
                         a.wave_shape.k * a.warp_tile_shape.k};
    for (int i = 0; i < 3; ++i) {
      if (tiles[i] > 0 && waves[i] > 0 && tiles[i] % waves[i] == 0) continue;
      result.add_error(std::string("the tile's ") + "mnk"[i] + " of " + std::to_string(tiles[i]) +
                       " is no multiple of the waves' " + std::to_string(waves[i]));
    }
  }
  void check_waves(const KernelKey& key, ValidationResult& result) const {
    const auto all = get_supported_warp_configs(arch_);
    const auto& w = key.algorithm.wave_shape;
    if (all.empty()) {
      const std::string sentence = "there is no table of waves for " + get_arch_string();
      return strict_ ? result.add_error(sentence) : result.add_warning(sentence);
    }
    if (std::find(all.begin(), all.end(), WarpConfig{w.m, w.n, w.k}) != all.end()) return;
    result.add_error("the waves " + detail::shape_text(w) + " are none of " + get_arch_string() +
                     "'s");
  }
  void check_warp_tiles(const KernelKey& key, ValidationResult& result) const {
    const KernelKey::Signature& s = key.signature;
    const auto all = get_supported_warp_tiles(arch_, s.dtype_a, s.dtype_b, s.dtype_c);
    const auto& w = key.algorithm.warp_tile_shape;
    if (all.empty()) {
      return result.add_warning("there is no table of warp tiles for " + to_string(s.dtype_a));
    }
    if (std::find(all.begin(), all.end(), WarpTileConfig{w.m, w.n, w.k}) != all.end()) return;
    result.add_error("the warp tile " + detail::shape_text(w) + " is none of " + get_arch_string() +
                     "'s");
  }
  void check_memory(const KernelKey& key, ValidationResult& result) const {
    const auto& tile = key.algorithm.tile_shape;
    const auto bytes = static_cast<std::size_t>(
        static_cast<float>(tile.m * tile.k) * element_size(key.signature.dtype_a) +
        static_cast<float>(tile.n * tile.k) * element_size(key.signature.dtype_b));
    const std::size_t limit =
        get_lds_capacity(arch_, key.algorithm.pipeline, key.algorithm.double_buffer);
    if (bytes <= limit) return;
    result.add_error("LDS capacity exceeded: the tiles take " + std::to_string(bytes) +
                     " bytes, and " + get_arch_string() + " has " + std::to_string(limit) +
                     " for them in " + to_string(key.algorithm.pipeline) +
                     (key.algorithm.double_buffer ? " with two buffers" : ""));
  }

  GpuArch arch_;
  bool strict_;
};

template <class Kernel>
auto make_arch_filter_predicate(const std::string& arch) {
  return [filter = ArchFilter(arch)](const Kernel& one) { return filter.is_valid(one.get_key()); };
}

}  // namespace ck_tile::dispatcher
