// The attention kernels that a dispatcher chooses from.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera_ck/fmha_kernel_decl.hpp"
#include "tessera_ck/kernel_registry.hpp"

namespace tessera_ck {

struct FmhaKernelKey {
  std::string kernel;  // Tessera's name, which has all fields
  std::string gfx_arch;
  friend bool operator==(const FmhaKernelKey&, const FmhaKernelKey&) = default;
};

using FmhaKernelKeyHash = KernelNameHash;

class FmhaKernelInstance : public BaseKernelInstance<FmhaKernelKey> {
 public:
  FmhaKernelInstance(const tessera::KernelSpec& spec, std::shared_ptr<Machine> machine)
      : BaseKernelInstance({tessera::name_of(spec), spec.target}, spec, std::move(machine)) {}

  bool supports(const FmhaProblem& problem) const {
    return computes(problem.asked, problem.deterministic);
  }
  double predicted_seconds(const FmhaProblem& problem) const { return seconds_of(problem.asked); }
  float run(const FmhaInvocation& call, void* stream, bool measures, const Timing& timing) const {
    return run_forced(machine(), get_name(), call.problem.asked, call.args, stream, measures,
                      timing);
  }
};

using FmhaKernelInstancePtr = std::shared_ptr<FmhaKernelInstance>;

namespace detail {

// The numbers of the receipts, and Tessera's names.
inline constexpr std::pair<int, std::string_view> kFmhaReceipts[] = {
    {0, "ck_default"},        {1, "ck_extended"},   {2, "flash_fwd"},     {3, "flash_bwd"},
    {4, "pytorch"},           {100, "aiter_batch"}, {200, "aiter_group"}, {300, "aiter_bwd_batch"},
    {400, "aiter_bwd_group"}, {600, "aiter_cpp"},   {800, "fp32_all"},    {801, "fp32_min"},
    {888, "fp8_test"}};

}  // namespace detail

class FmhaRegistry
    : public KernelRegistry<FmhaRegistry, FmhaKernelKey, FmhaKernelInstance, FmhaKernelKeyHash> {
 public:
  explicit FmhaRegistry(const std::string& name = "default") { set_name(name); }
  ~FmhaRegistry() { export_at_end(); }

  // Keeps what a framework needs, and returns how many kernels were removed. Throws DispatcherError
  // for an unknown number.
  std::size_t filter_by_receipt(int number) {
    const tessera::Registry kept = by_receipt(std::to_string(number));
    return keep_if([&](const FmhaKernelInstance& one) { return kept.contains(one.get_name()); });
  }
  // The numbers of the receipts that have a kernel here.
  std::vector<int> available_receipts() const {
    std::vector<int> numbers;
    for (const std::string& name : all_in_tessera().receipts()) {
      for (const auto& [number, word] : detail::kFmhaReceipts) {
        if (name == word) numbers.push_back(number);
      }
    }
    return numbers;
  }
  std::string export_json(bool include_statistics = true) const {
    return json_of(include_statistics, [](const FmhaKernelInstance& one, detail::Counts& counts) {
      const auto& s = std::get<tessera::FmhaSignature>(one.spec().signature);
      counts["by_datatype"][std::string(tessera::to_string(s.in))]++;
      counts["by_family"][std::string(tessera::to_string(s.kind))]++;
      counts["by_pipeline"][std::string(tessera::to_string(one.spec().algorithm.pipeline))]++;
      return detail::kernel_json(one.spec(), one.get_name());
    });
  }
  // Whether it was written.
  bool export_json_to_file(const std::string& path, bool include_statistics = true) const {
    try {
      write_file(path, export_json(include_statistics));
    } catch (const DispatcherError&) {
      return false;
    }
    return true;
  }

 private:
  tessera::Registry all_in_tessera() const {
    tessera::Registry all("all");
    for (const FmhaKernelInstancePtr& one : get_all()) all.declare(one->spec());
    return all;
  }
  tessera::Registry by_receipt(const std::string& receipt) const {
    return in_sentences([&] { return all_in_tessera().filtered_by_receipt(receipt); });
  }
};

inline std::shared_ptr<FmhaRegistry> make_fmha_registry(const std::string& name) {
  return std::make_shared<FmhaRegistry>(name);
}

}  // namespace tessera_ck
