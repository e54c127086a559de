#include "tessera/runtime/gpu_kernel_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "tessera/base/files.h"
#include "tessera/device/cuda/abi.h"
#include "tessera/runtime/cuda_tensor_map_internal.h"
#include "tessera/runtime/gpu_workspace_internal.h"
#include "tessera/runtime/launch_checks_internal.h"

namespace tessera::runtime::gpu {
namespace {

static_assert(sizeof(device::CudaTensorMap) == kTensorMapBytes);

Stream stream_of(const LaunchOptions& options) { return static_cast<Stream>(options.stream); }

constexpr unsigned kBlocksPerUnit = 8;  // for steps that take any number of blocks

unsigned product(const std::array<unsigned, 3>& shape) { return shape[0] * shape[1] * shape[2]; }

// A driver's LaunchConfig and the attribute that it points to.
struct Configuration {
  LaunchConfig config{};
  LaunchAttribute cluster{};

  Configuration(const Step& step, unsigned blocks, Stream stream) {
    config.grid[0] = blocks, config.grid[1] = step.grid[1], config.grid[2] = step.grid[2];
    std::copy(step.block.begin(), step.block.end(), config.block);
    config.shared_bytes = static_cast<unsigned>(step.shared_memory_bytes);
    config.stream = stream;
    if (product(step.cluster) == 1) return;
    cluster.id = kClusterDimension;
    std::copy(step.cluster.begin(), step.cluster.end(), cluster.value);
    config.attributes = &cluster;
    config.num_attributes = 1;
  }
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;
};

// The arguments in both forms that drivers take: the address of each parameter, or all as a buffer
// with its size. Both point into the object.
struct Parameters {
  std::size_t bytes;
  void* each[2];
  void* buffer[5];

  Parameters(std::byte* data, const ArgumentBlock& block)
      : bytes(block.size()),
        each{data, data + block.second()},
        buffer{reinterpret_cast<void*>(1), data, reinterpret_cast<void*>(2), &bytes,
               reinterpret_cast<void*>(3)} {}
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;
};

// How many blocks of one step's geometry a device runs at once.
struct Residency {
  unsigned threads = 0;
  std::size_t shared_bytes = 0;
  unsigned cluster = 0;
  unsigned blocks = 0;
};

// One entry of the module.
struct Entry {
  Function function = nullptr;
  std::size_t shared_bytes = 0;  // the most that steps were allowed so far
  bool any_cluster = false;      // whether clusters of more than 8 blocks are allowed
  Residency residency;
};

// The module in one context of a device.
struct Placed {
  Gpu* gpu = nullptr;  // null: not loaded
  Module module = nullptr;
  std::vector<Entry> entries;
};

// What each step of a launch needs from the module.
struct ReadyStep {
  Function function;
  unsigned blocks;
};
using ReadySteps = InlineVector<ReadyStep, decltype(Launch::steps)::most()>;

class GpuKernel final : public LoadedKernel {
 public:
  GpuKernel(const Vendor& vendor, const jit::Artifact& artifact, std::string image,
            Architecture architecture)
      : vendor_(vendor),
        name_(std::make_shared<const std::string>(artifact.name)),
        abi_(artifact.abi),
        entries_(artifact.entries),
        image_(std::move(image)),
        architecture_(std::move(architecture)) {}
  ~GpuKernel() override;

  void launch(const Launch& launch, const LaunchOptions& options) const override;
  std::size_t workspace_bytes(const Launch& launch, const LaunchOptions&) const override {
    return launch.workspace.bytes;
  }
  void place(const LaunchOptions& options) const override;

 private:
  struct Arguments {
    alignas(64) std::array<std::byte, ArgumentBlock::kMostBytes> bytes;
  };
  void check_pointers(Gpu& gpu, const Launch& launch) const;
  void fill_arguments(Gpu& gpu, const Launch& launch, Pointer workspace,
                      Arguments& arguments) const;
  static void write_blocks(const Launch& launch, const ReadySteps& ready, Arguments& arguments);
  void enqueue(Gpu& gpu, Stream stream, Function function, const LaunchConfig& config,
               Parameters& parameters) const;
  Placed& placed_on(Gpu& gpu, Stream stream) const;
  Placed load_on(Gpu& gpu) const;
  Entry find_entry(Gpu& gpu, Module module, const std::string& suffix) const;
  void check_abi(Gpu& gpu, Module module) const;
  ReadySteps prepare(Gpu& gpu, const Launch& launch, Stream stream) const;
  unsigned blocks_of(Gpu& gpu, Entry& entry, const Step& step) const;
  void allow(Gpu& gpu, Entry& entry, const Step& step) const;
  void refuse_clusters(const Step& step) const;
  unsigned resident_blocks(Gpu& gpu, const Entry& entry, const Step& step) const;
  [[noreturn]] void fail_to_load(const Gpu& gpu, Result result) const;
  void fail_to_launch(Gpu& gpu, Stream stream, Result result) const;
  const std::string& name() const { return *name_; }

  const Vendor& vendor_;
  std::shared_ptr<const std::string> name_;
  int abi_;
  std::vector<std::string> entries_;
  std::string image_;
  Architecture architecture_;
  mutable std::mutex mutex_;
  mutable std::map<int, Placed> placed_;  // by device
};

GpuKernel::~GpuKernel() {
  for (const auto& [ordinal, placed] : placed_) {
    if (placed.gpu == nullptr || !placed.gpu->is_current()) continue;
    try {
      const CurrentContext current(*placed.gpu);
      placed.gpu->note_failure(placed.gpu->driver().module_unload(placed.module));
    } catch (const Error&) {
      // The context is gone, and so is the module.
    }
  }
}

// The order matters: all checks come before anything is enqueued.
void GpuKernel::launch(const Launch& launch, const LaunchOptions& options) const {
  if (launch.steps.empty()) return;
  const Driver& driver = gpu::driver(vendor_);
  Gpu& gpu = Gpu::use(driver, options.device);
  const CurrentContext current(gpu);
  const Stream stream = stream_of(options);
  const ReadySteps ready = prepare(gpu, launch, stream);
  check_pointers(gpu, launch);

  std::optional<WorkspaceLease> lease;
  Pointer workspace = 0;
  const std::size_t wanted = launch.workspace.bytes;
  if (wanted > 0 && options.brings_workspace()) {
    check_workspace(name(), wanted, kWorkspaceAlignment, options);
    lease.emplace(gpu, stream, options, name());
    workspace = reinterpret_cast<Pointer>(options.workspace);
  } else if (wanted > 0) {
    workspace = gpu.workspace(stream, wanted, name());
  }

  Arguments arguments;
  fill_arguments(gpu, launch, workspace, arguments);
  if (launch.blocks_offset > 0) write_blocks(launch, ready, arguments);
  Parameters parameters(arguments.bytes.data(), launch.arguments);
  if (wanted > 0) {
    clear_workspace(gpu, stream, launch.workspace, workspace, lease.has_value(), name());
  }
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const Configuration configuration(launch.steps[i], ready[i].blocks, stream);
    enqueue(gpu, stream, ready[i].function, configuration.config, parameters);
  }
}

void GpuKernel::place(const LaunchOptions& options) const {
  Gpu& gpu = Gpu::use(gpu::driver(vendor_), options.device);
  const CurrentContext current(gpu);
  const std::lock_guard lock(mutex_);
  placed_on(gpu, stream_of(options));
}

// A kernel for AMD's GPUs cannot ask how many blocks run with it.
void GpuKernel::write_blocks(const Launch& launch, const ReadySteps& ready, Arguments& arguments) {
  for (std::size_t i = 0; i < ready.size(); ++i) {
    if (launch.steps[i].extent != Step::Extent::resident) continue;
    const auto blocks = static_cast<int>(ready[i].blocks);
    std::memcpy(arguments.bytes.data() + launch.blocks_offset, &blocks, sizeof(blocks));
  }
}

void GpuKernel::enqueue(Gpu& gpu, Stream stream, Function function, const LaunchConfig& config,
                        Parameters& parameters) const {
  const bool as_buffer = vendor_.arguments_in_buffer;
  const Result result =
      gpu.driver().launch(&config, function, as_buffer ? nullptr : parameters.each,
                          as_buffer ? parameters.buffer : nullptr);
  if (result != kSuccess) fail_to_launch(gpu, stream, result);
  gpu.note_launch(stream, name_);
}

void GpuKernel::check_pointers(Gpu& gpu, const Launch& launch) const {
  for (const void* pointer : launch.pointers) gpu.check_pointer(pointer, name());
}

void GpuKernel::fill_arguments(Gpu& gpu, const Launch& launch, Pointer workspace,
                               Arguments& arguments) const {
  std::memcpy(arguments.bytes.data(), launch.arguments.data(), launch.arguments.size());
  if (workspace != 0) {
    std::memcpy(arguments.bytes.data() + launch.workspace.address_offset, &workspace,
                sizeof(workspace));
  }
  for (const WorkspacePlace& place : launch.workspace_places) {
    const Pointer address = workspace + place.workspace_offset;
    std::memcpy(arguments.bytes.data() + place.offset, &address, sizeof(address));
  }
  if (gpu.driver().encode_tiled == nullptr && launch.tensor_maps.size() > 0) {
    throw Error(ErrorCode::internal,
                fmt::format("{}: has {} tensor maps, which {} does not know", name(),
                            launch.tensor_maps.size(), vendor_.driver));
  }
  for (const TensorMap& map : launch.tensor_maps) {
    const void* const base = map.in_workspace
                                 ? reinterpret_cast<const void*>(workspace + map.workspace_offset)
                                 : map.base;
    encode(gpu, map, base, name(), arguments.bytes.data() + map.offset);
  }
}

ReadySteps GpuKernel::prepare(Gpu& gpu, const Launch& launch, Stream stream) const {
  const std::lock_guard lock(mutex_);
  Placed& placed = placed_on(gpu, stream);
  ReadySteps ready;
  for (const Step& step : launch.steps) {
    const std::size_t entries = placed.entries.size();
    if (step.entry >= entries) refuse_entry(name(), step.entry, entries);
    Entry& entry = placed.entries[step.entry];
    allow(gpu, entry, step);
    ready.push({entry.function, blocks_of(gpu, entry, step)});
  }
  return ready;
}

// How much of the step's grid[0] is launched.
unsigned GpuKernel::blocks_of(Gpu& gpu, Entry& entry, const Step& step) const {
  if (step.extent == Step::Extent::exact) return step.grid[0];
  if (step.extent == Step::Extent::any) {
    return std::min(step.grid[0], kBlocksPerUnit * static_cast<unsigned>(gpu.units()));
  }
  const Residency wanted{product(step.block), step.shared_memory_bytes, product(step.cluster), 0};
  Residency& known = entry.residency;
  if (known.threads != wanted.threads || known.shared_bytes != wanted.shared_bytes ||
      known.cluster != wanted.cluster) {
    const unsigned blocks = resident_blocks(gpu, entry, step);
    known = wanted;
    known.blocks = blocks;
  }
  return std::min(step.grid[0], known.blocks);
}

Placed& GpuKernel::placed_on(Gpu& gpu, Stream stream) const {
  Placed& placed = placed_[gpu.ordinal()];
  if (placed.gpu == &gpu) return placed;
  if (gpu.is_capturing(stream, name())) {
    throw Error(ErrorCode::launch_failed,
                fmt::format("{}: is not on {} yet, and nothing can be loaded while the stream is "
                            "captured; launch it once before the capture",
                            name(), gpu.label()));
  }
  placed = load_on(gpu);
  return placed;
}

Placed GpuKernel::load_on(Gpu& gpu) const {
  if (const std::string why = vendor_.why_not(architecture_, gpu.facts()); !why.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("cannot load kernel '{}': it was built for {}, which {} {}", name(),
                            vendor_.words_of(architecture_), gpu.label(), why));
  }
  const Driver& driver = gpu.driver();
  Placed placed;
  placed.gpu = &gpu;
  if (const Result result = driver.module_load(&placed.module, image_.data()); result != kSuccess) {
    gpu.note_reported(result);
    fail_to_load(gpu, result);
  }
  try {
    for (const std::string& suffix : entries_) {
      placed.entries.push_back(find_entry(gpu, placed.module, suffix));
    }
    check_abi(gpu, placed.module);
  } catch (const Error&) {
    driver.module_unload(placed.module);
    throw;
  }
  return placed;
}

Entry GpuKernel::find_entry(Gpu& gpu, Module module, const std::string& suffix) const {
  const std::string symbol = name() + suffix;
  Entry entry;
  const Result result = gpu.driver().module_function(&entry.function, module, symbol.c_str());
  if (result == kNotFound) {
    throw Error(ErrorCode::load_failed,
                fmt::format("cannot load kernel '{}': its {} must hold the entry '{}', but does "
                            "not; clear its cache entry to build it again",
                            name(), vendor_.binary, symbol));
  }
  gpu.check(result, fmt::format("cannot find '{}' in its module", symbol));
  return entry;
}

void GpuKernel::check_abi(Gpu& gpu, Module module) const {
  const Driver& driver = gpu.driver();
  const std::string symbol = name() + "_abi";
  Pointer address = 0;
  std::size_t bytes = 0;
  int version = 0;
  const auto check = [&](Result result) {
    gpu.check(result, fmt::format("cannot read the ABI version of kernel '{}'", name()));
  };
  const Result result = driver.module_global(&address, &bytes, module, symbol.c_str());
  if (result != kNotFound) check(result);
  if (result == kSuccess && bytes == sizeof(version)) {
    check(driver.copy_to_host(&version, address, sizeof(version), nullptr));
    check(driver.stream_synchronize(nullptr));
  }
  if (version == abi_) return;
  throw Error(ErrorCode::load_failed,
              fmt::format("cannot load kernel '{}': its ABI version must be {}, got {}; clear its "
                          "cache entry to build it again",
                          name(), abi_, version == 0 ? "none" : std::to_string(version)));
}

// Raises NVIDIA's limits as needed. They start at 48 KB of shared memory and clusters of 8
// blocks.
void GpuKernel::allow(Gpu& gpu, Entry& entry, const Step& step) const {
  if (gpu.driver().function_set == nullptr) return refuse_clusters(step);
  constexpr unsigned kPortableCluster = 8;
  const auto raise = [&](FunctionAttribute attribute, int value, std::string_view what) {
    const Result result = gpu.driver().function_set(entry.function, attribute, value);
    if (result == kSuccess) return;
    gpu.note_reported(result);
    throw Error(code_of(vendor_, result),
                fmt::format("{}: {} does not grant it {}: {}", name(), gpu.label(), what,
                            gpu::describe(vendor_, result)));
  };
  if (step.shared_memory_bytes > entry.shared_bytes) {
    raise(kMaxDynamicSharedBytes, static_cast<int>(step.shared_memory_bytes),
          fmt::format("{} bytes of shared memory", step.shared_memory_bytes));
    entry.shared_bytes = step.shared_memory_bytes;
  }
  if (product(step.cluster) > kPortableCluster && !entry.any_cluster) {
    raise(kNonPortableCluster, 1, fmt::format("clusters of {} blocks", product(step.cluster)));
    entry.any_cluster = true;
  }
}

void GpuKernel::refuse_clusters(const Step& step) const {
  if (product(step.cluster) == 1) return;
  throw Error(ErrorCode::internal, fmt::format("{}: has clusters of {} blocks, which {} does not "
                                               "know",
                                               name(), product(step.cluster), vendor_.driver));
}

unsigned GpuKernel::resident_blocks(Gpu& gpu, const Entry& entry, const Step& step) const {
  const Driver& driver = gpu.driver();
  const unsigned cluster = product(step.cluster);
  int count = 0;
  Result result = kSuccess;
  unsigned blocks = 0;
  if (cluster == 1) {
    result = driver.blocks_per_unit(&count, entry.function, static_cast<int>(product(step.block)),
                                    step.shared_memory_bytes);
    blocks = static_cast<unsigned>(count * gpu.units());
  } else {
    const Configuration configuration(step, step.grid[0], nullptr);
    result = driver.max_clusters(&count, entry.function, &configuration.config);
    blocks = static_cast<unsigned>(count) * cluster;
  }
  gpu.check(result, fmt::format("{}: cannot ask how many blocks run at once", name()));
  if (blocks > 0) return blocks;
  throw Error(
      ErrorCode::launch_failed,
      fmt::format("{}: does not fit on {} with {} threads and {} bytes of shared memory a "
                  "block, in clusters of {}",
                  name(), gpu.label(), product(step.block), step.shared_memory_bytes, cluster));
}

void GpuKernel::fail_to_load(const Gpu& gpu, Result result) const {
  const bool not_understood = result == kInvalidImage || result == kNoBinaryForGpu ||
                              result == kInvalidPtx || result == kUnsupportedPtx;
  const ErrorCode code = code_of(vendor_, result);
  throw Error(code == ErrorCode::launch_failed ? ErrorCode::load_failed : code,
              fmt::format("cannot load kernel '{}' for {} on {}: {}{}", name(), architecture_.name,
                          gpu.label(), gpu::describe(vendor_, result),
                          not_understood ? "; " + vendor_.load_hint(gpu.driver()) : ""));
}

// A lost context shows at the next call, whichever thread lost it.
void GpuKernel::fail_to_launch(Gpu& gpu, Stream stream, Result result) const {
  if (is_sticky(vendor_, result) && vendor_.has_run != nullptr && vendor_.has_run()) {
    gpu.check(result, fmt::format("kernel '{}' failed", name()));
  }
  std::string detail;
  if (is_sticky(vendor_, result)) {
    const std::string last = gpu.last_kernel(stream);
    detail = fmt::format("an earlier one failed there{}: ",
                         last.empty() ? "" : ", perhaps '" + last + "', the last on this stream");
  }
  gpu.check(result, fmt::format("cannot launch kernel '{}'", name()), detail);
}

}  // namespace

std::shared_ptr<const LoadedKernel> load_kernel(const Vendor& vendor, const jit::Artifact& artifact,
                                                const Architecture& architecture) {
  std::string image;
  try {
    image = read_file(artifact.binary);
  } catch (const Error& error) {
    throw Error(ErrorCode::load_failed,
                fmt::format("cannot load kernel '{}': {}", artifact.name, error.what()));
  }
  if (const std::string damage = vendor.binary_damage(architecture, image); !damage.empty()) {
    throw Error(ErrorCode::load_failed,
                fmt::format("cannot load kernel '{}': '{}' {}; clear its cache entry to build it "
                            "again",
                            artifact.name, artifact.binary.string(), damage));
  }
  return std::make_shared<GpuKernel>(vendor, artifact, std::move(image), architecture);
}

}  // namespace tessera::runtime::gpu
