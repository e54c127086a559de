#include "tessera/runtime/cuda_kernel_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tessera/base/files.h"
#include "tessera/device/cuda/abi.h"
#include "tessera/runtime/cuda_tensor_map_internal.h"

namespace tessera::runtime::cuda {
namespace {

static_assert(sizeof(device::CudaTensorMap) == kTensorMapBytes);

Stream stream_of(const LaunchOptions& options) { return static_cast<Stream>(options.stream); }

constexpr unsigned kBlocksPerUnit = 8;  // of kernels that take any number of blocks

unsigned product(const std::array<unsigned, 3>& shape) { return shape[0] * shape[1] * shape[2]; }

// A driver's LaunchConfig and the attribute that it points to.
struct Configuration {
  LaunchConfig config{};
  LaunchAttribute cluster{};

  Configuration(const Launch& launch, unsigned blocks, Stream stream) {
    config.grid[0] = blocks, config.grid[1] = launch.grid[1], config.grid[2] = launch.grid[2];
    std::copy(launch.block.begin(), launch.block.end(), config.block);
    config.shared_bytes = static_cast<unsigned>(launch.shared_memory_bytes);
    config.stream = stream;
    if (product(launch.cluster) == 1) return;
    cluster.id = kClusterDimension;
    std::copy(launch.cluster.begin(), launch.cluster.end(), cluster.value);
    config.attributes = &cluster;
    config.num_attributes = 1;
  }
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;
};

// How many blocks of one launch geometry a device runs at once.
struct Residency {
  unsigned threads = 0;
  std::size_t shared_bytes = 0;
  unsigned cluster = 0;
  unsigned blocks = 0;
};

// The module in one context of a device.
struct Placed {
  Gpu* gpu = nullptr;  // null: not there
  Module module = nullptr;
  Function function = nullptr;
  Function prepare = nullptr;    // <name>_prepare, once it was needed
  std::size_t shared_bytes = 0;  // that launches were allowed
  bool any_cluster = false;      // clusters of more than 8 blocks too
  Residency residency;
};

// What a launch needs of it.
struct Ready {
  Function function;
  unsigned blocks;
  Function prepare;  // null when nothing comes first
};

class CudaKernel final : public LoadedKernel {
 public:
  CudaKernel(std::string name, std::string image, Architecture architecture)
      : name_(std::make_shared<const std::string>(std::move(name))),
        image_(std::move(image)),
        architecture_(std::move(architecture)) {}
  ~CudaKernel() override;

  void launch(const Launch& launch, const LaunchOptions& options) const override;
  std::size_t packed_bytes(const Launch& launch) const override;
  void pack(const Launch& launch, void* packed, const LaunchOptions& options) const override;

 private:
  struct Arguments {
    alignas(64) std::array<std::byte, sizeof(Launch::arguments)> bytes;
  };
  void check_pointers(Gpu& gpu, const Launch& launch) const;
  void fill_arguments(Gpu& gpu, const Launch& launch, Stream stream, Arguments& arguments) const;
  Function companion(Gpu& gpu, Module module, std::string_view suffix) const;
  void enqueue(Gpu& gpu, Stream stream, Function function, const LaunchConfig& config,
               void** parameters) const;
  Placed& placed_on(Gpu& gpu, Stream stream) const;
  Placed load_on(Gpu& gpu) const;
  void check_abi(Gpu& gpu, Module module) const;
  Ready prepare(Gpu& gpu, const Launch& launch, Stream stream) const;
  void allow(Gpu& gpu, Placed& placed, const Launch& launch) const;
  unsigned resident_blocks(Gpu& gpu, const Placed& placed, const Launch& launch) const;
  [[noreturn]] void fail_to_load(const Gpu& gpu, Result result) const;
  void fail_to_launch(Gpu& gpu, Stream stream, Result result) const;
  const std::string& name() const { return *name_; }

  std::shared_ptr<const std::string> name_;
  std::string image_;
  Architecture architecture_;
  mutable std::mutex mutex_;
  mutable std::map<int, Placed> placed_;  // by device
};

CudaKernel::~CudaKernel() {
  for (const auto& [ordinal, placed] : placed_) {
    if (placed.gpu == nullptr || !placed.gpu->is_current()) continue;
    try {
      const CurrentContext current(*placed.gpu);
      placed.gpu->note_failure(placed.gpu->driver().module_unload(placed.module));
    } catch (const Error&) {
      // The context is gone, and the module with it.
    }
  }
}

// The order matters: what can be refused is refused before anything is enqueued.
void CudaKernel::launch(const Launch& launch, const LaunchOptions& options) const {
  if (launch.empty) return;
  const Driver& driver = cuda::driver();
  Gpu& gpu = Gpu::use(driver, options.device);
  const CurrentContext current(gpu);
  const Stream stream = stream_of(options);
  const Ready ready = prepare(gpu, launch, stream);
  check_pointers(gpu, launch);
  Arguments arguments;
  fill_arguments(gpu, launch, stream, arguments);
  void* parameters[] = {arguments.bytes.data()};
  if (ready.prepare != nullptr) {
    Launch geometry;
    geometry.block[0] = launch.prepare_threads;
    const unsigned most = kBlocksPerUnit * static_cast<unsigned>(gpu.units());
    const Configuration first(geometry, std::min(launch.prepare_blocks, most), stream);
    enqueue(gpu, stream, ready.prepare, first.config, parameters);
  }
  const Configuration configuration(launch, ready.blocks, stream);
  enqueue(gpu, stream, ready.function, configuration.config, parameters);
}

void CudaKernel::enqueue(Gpu& gpu, Stream stream, Function function, const LaunchConfig& config,
                         void** parameters) const {
  const Result result = gpu.driver().launch(&config, function, parameters, nullptr);
  if (result != kSuccess) fail_to_launch(gpu, stream, result);
  gpu.note_launch(stream, name_);
}

void CudaKernel::check_pointers(Gpu& gpu, const Launch& launch) const {
  for (int i = 0; i < launch.num_pointers; ++i) {
    gpu.check_pointer(launch.pointers[static_cast<std::size_t>(i)], name());
  }
}

void CudaKernel::fill_arguments(Gpu& gpu, const Launch& launch, Stream stream,
                                Arguments& arguments) const {
  std::memcpy(arguments.bytes.data(), launch.arguments.data(), launch.arguments_size);
  Pointer workspace = 0;
  if (launch.workspace_bytes > 0) {
    workspace = gpu.workspace(stream, launch.workspace_bytes, name());
    std::memcpy(arguments.bytes.data() + launch.workspace_offset, &workspace, sizeof(workspace));
  }
  for (int i = 0; i < launch.num_tensor_maps; ++i) {
    TensorMap map = launch.tensor_maps[static_cast<std::size_t>(i)];
    if (map.in_workspace) {
      map.base = reinterpret_cast<const void*>(workspace + map.workspace_offset);
    }
    encode(gpu, map, name(), arguments.bytes.data() + map.offset);
  }
}

Ready CudaKernel::prepare(Gpu& gpu, const Launch& launch, Stream stream) const {
  const std::lock_guard lock(mutex_);
  Placed& placed = placed_on(gpu, stream);
  allow(gpu, placed, launch);
  const bool prepares = launch.prepare_blocks > 0;
  if (prepares && placed.prepare == nullptr) {
    placed.prepare = companion(gpu, placed.module, "_prepare");
  }
  Function const first = prepares ? placed.prepare : nullptr;
  if (!launch.persistent) return {placed.function, launch.grid[0], first};

  const Residency wanted{product(launch.block), launch.shared_memory_bytes, product(launch.cluster),
                         0};
  Residency& known = placed.residency;
  if (known.threads != wanted.threads || known.shared_bytes != wanted.shared_bytes ||
      known.cluster != wanted.cluster) {
    const unsigned blocks = resident_blocks(gpu, placed, launch);
    known = wanted;
    known.blocks = blocks;
  }
  return {placed.function, std::min(launch.grid[0], known.blocks), first};
}

Placed& CudaKernel::placed_on(Gpu& gpu, Stream stream) const {
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

Placed CudaKernel::load_on(Gpu& gpu) const {
  if (!runs_on(architecture_, gpu.capability())) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("cannot load kernel '{}': it was built for {} (compute capability {}), "
                    "which {} does not run",
                    name(), architecture_.name, to_string(architecture_.capability), gpu.label()));
  }
  const Driver& driver = gpu.driver();
  Placed placed;
  placed.gpu = &gpu;
  if (const Result result = driver.module_load(&placed.module, image_.data()); result != kSuccess) {
    gpu.note_reported(result);
    fail_to_load(gpu, result);
  }
  try {
    const Result result = driver.module_function(&placed.function, placed.module, name().c_str());
    if (result == kNotFound) {
      throw Error(ErrorCode::load_failed,
                  fmt::format("cannot load kernel '{}': its cubin must hold a kernel of that name, "
                              "but has none; clear its cache entry to build it again",
                              name()));
    }
    gpu.check(result, fmt::format("cannot find kernel '{}' in its module", name()));
    check_abi(gpu, placed.module);
  } catch (const Error&) {
    driver.module_unload(placed.module);
    throw;
  }
  return placed;
}

void CudaKernel::check_abi(Gpu& gpu, Module module) const {
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
  if (version == device::kCudaAbiVersion) return;
  throw Error(ErrorCode::load_failed,
              fmt::format("cannot load kernel '{}': its ABI version must be {}, got {}; clear its "
                          "cache entry to build it again",
                          name(), device::kCudaAbiVersion,
                          version == 0 ? "none" : std::to_string(version)));
}

// What a launch may ask for is raised as needed; the driver starts with 48 KB and 8 blocks.
void CudaKernel::allow(Gpu& gpu, Placed& placed, const Launch& launch) const {
  constexpr unsigned kPortableCluster = 8;
  const auto raise = [&](FunctionAttribute attribute, int value, std::string_view what) {
    const Result result = gpu.driver().function_set(placed.function, attribute, value);
    if (result == kSuccess) return;
    gpu.note_reported(result);
    throw Error(code_of(result), fmt::format("{}: {} does not grant it {}: {}", name(), gpu.label(),
                                             what, describe(result)));
  };
  if (launch.shared_memory_bytes > placed.shared_bytes) {
    raise(kMaxDynamicSharedBytes, static_cast<int>(launch.shared_memory_bytes),
          fmt::format("{} bytes of shared memory", launch.shared_memory_bytes));
    placed.shared_bytes = launch.shared_memory_bytes;
  }
  if (product(launch.cluster) > kPortableCluster && !placed.any_cluster) {
    raise(kNonPortableCluster, 1, fmt::format("clusters of {} blocks", product(launch.cluster)));
    placed.any_cluster = true;
  }
}

unsigned CudaKernel::resident_blocks(Gpu& gpu, const Placed& placed, const Launch& launch) const {
  const Driver& driver = gpu.driver();
  const unsigned cluster = product(launch.cluster);
  int count = 0;
  Result result = kSuccess;
  unsigned blocks = 0;
  if (cluster == 1) {
    result =
        driver.blocks_per_unit(&count, placed.function, static_cast<int>(product(launch.block)),
                               launch.shared_memory_bytes);
    blocks = static_cast<unsigned>(count * gpu.units());
  } else {
    const Configuration configuration(launch, launch.grid[0], nullptr);
    result = driver.max_clusters(&count, placed.function, &configuration.config);
    blocks = static_cast<unsigned>(count) * cluster;
  }
  gpu.check(result, fmt::format("{}: cannot ask how many blocks run at once", name()));
  if (blocks > 0) return blocks;
  throw Error(
      ErrorCode::launch_failed,
      fmt::format("{}: does not fit on {} with {} threads and {} bytes of shared memory a "
                  "block, in clusters of {}",
                  name(), gpu.label(), product(launch.block), launch.shared_memory_bytes, cluster));
}

void CudaKernel::fail_to_load(const Gpu& gpu, Result result) const {
  int version = 0;
  gpu.driver().driver_version(&version);
  const bool not_understood = result == kInvalidImage || result == kNoBinaryForGpu ||
                              result == kInvalidPtx || result == kUnsupportedPtx;
  const ErrorCode code = code_of(result);
  throw Error(
      code == ErrorCode::launch_failed ? ErrorCode::load_failed : code,
      fmt::format(
          "cannot load kernel '{}' for {} on {}: {}{}", name(), architecture_.name, gpu.label(),
          describe(result),
          not_understood
              ? fmt::format("; the driver supports CUDA {}: a cubin of a later CUDA needs a "
                            "later driver, or build it with an earlier NVRTC "
                            "(TESSERA_NVRTC)",
                            version_text(version))
              : ""));
}

// A lost context shows at the next call, whoever lost it.
void CudaKernel::fail_to_launch(Gpu& gpu, Stream stream, Result result) const {
  std::string detail;
  if (is_sticky(result)) {
    const std::string last = gpu.last_kernel(stream);
    detail = fmt::format("an earlier one failed there{}: ",
                         last.empty() ? "" : ", perhaps '" + last + "', the last on this stream");
  }
  gpu.check(result, fmt::format("cannot launch kernel '{}'", name()), detail);
}

std::size_t CudaKernel::packed_bytes(const Launch& launch) const {
  if (launch.packed_bytes > 0 || launch.empty) return launch.packed_bytes;
  throw Error(
      ErrorCode::unsupported,
      fmt::format("kernel '{}' has no packing: only preshuffle kernels take a packed B", name()));
}

// <name>_pack of the same cubin: the launch's arguments, and where the packed B goes. Any grid
// does; each thread writes 16 bytes at a time.
void CudaKernel::pack(const Launch& launch, void* packed, const LaunchOptions& options) const {
  constexpr unsigned kThreads = 256;
  constexpr std::size_t kBytesPerBlock = kThreads * 16;
  const std::size_t bytes = packed_bytes(launch);
  if (bytes == 0) return;
  const Driver& driver = cuda::driver();
  Gpu& gpu = Gpu::use(driver, options.device);
  const CurrentContext current(gpu);
  const Stream stream = stream_of(options);
  Function function = nullptr;
  {
    const std::lock_guard lock(mutex_);
    function = companion(gpu, placed_on(gpu, stream).module, "_pack");
  }
  gpu.check_pointer(packed, name());
  check_pointers(gpu, launch);
  Launch geometry;
  geometry.block[0] = kThreads;
  const std::size_t blocks = (bytes + kBytesPerBlock - 1) / kBytesPerBlock;
  const std::size_t most = std::size_t{kBlocksPerUnit} * static_cast<std::size_t>(gpu.units());
  Arguments arguments;
  std::memcpy(arguments.bytes.data(), launch.arguments.data(), launch.arguments_size);
  const Configuration configuration(geometry, static_cast<unsigned>(std::min(blocks, most)),
                                    stream);
  void* parameters[] = {arguments.bytes.data(), &packed};
  enqueue(gpu, stream, function, configuration.config, parameters);
}

// A further kernel of the same cubin.
Function CudaKernel::companion(Gpu& gpu, Module module, std::string_view suffix) const {
  const std::string symbol = name() + std::string(suffix);
  Function function = nullptr;
  const Result result = gpu.driver().module_function(&function, module, symbol.c_str());
  if (result == kSuccess) return function;
  if (result != kNotFound) {
    gpu.check(result, fmt::format("cannot find kernel '{}' in its module", symbol));
  }
  throw Error(ErrorCode::load_failed,
              fmt::format("kernel '{}': its cubin must hold the kernel '{}', but does not; "
                          "clear its cache entry to build it again",
                          name(), symbol));
}

}  // namespace

std::shared_ptr<const LoadedKernel> load_kernel(const jit::Artifact& artifact,
                                                const Architecture& architecture) {
  std::string image;
  try {
    image = read_file(artifact.binary);
  } catch (const Error& error) {
    throw Error(ErrorCode::load_failed,
                fmt::format("cannot load kernel '{}': {}", artifact.name, error.what()));
  }
  if (!image.starts_with("\177ELF")) {
    throw Error(ErrorCode::load_failed,
                fmt::format("cannot load kernel '{}': '{}' must be a cubin (an ELF file), but is "
                            "not; clear its cache entry to build it again",
                            artifact.name, artifact.binary.string()));
  }
  return std::make_shared<CudaKernel>(artifact.name, std::move(image), architecture);
}

}  // namespace tessera::runtime::cuda
