// Calls of the public C++ API on an emulated AMD GPU: each problem is computed there and on this
// machine's processor from the same random numbers, and both results are compared with fp64. Like a
// user, this program includes tessera.hpp alone and links the shared library.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <tessera/tessera.hpp>
#include <utility>
#include <vector>

namespace tessera::shared_test {
namespace {

constexpr const char* kTargets[] = {"gfx90a", "gfx942", "gfx950"};

// One target for the whole program: a GPU stays what it is.
struct World {
  unsigned seed = std::random_device{}();
  std::mt19937_64 random{seed};
  std::string target = kTargets[seed % 3];
  int (*allocate)(void**, std::size_t) = nullptr;
  int (*release)(void*) = nullptr;
  std::string missing;

  World() {
    setenv("TESSERA_HIP", EMULATED_HIP, 1);
    setenv("TESSERA_EMULATED_TARGET", target.c_str(), 1);
    std::printf("seed %u, %s\n", seed, target.c_str());
    for (const char* tool : {"clang++-22", "llvm-objdump-22"}) {
      const std::string command = std::string("command -v ") + tool + " >/dev/null 2>&1";
      if (std::system(command.c_str()) != 0) missing = std::string("there is no ") + tool;
    }
    void* const library = dlopen(EMULATED_HIP, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) std::abort();
    allocate = reinterpret_cast<decltype(allocate)>(dlsym(library, "hipMalloc"));
    release = reinterpret_cast<decltype(release)>(dlsym(library, "hipFree"));
  }
};
World& world() {
  static auto* const the_world = new World;
  return *the_world;
}
std::int64_t between(std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(world().random);
}

// Memory of the emulated GPU, which lies in this process, or of the host.
class Place {
 public:
  Place(std::size_t bytes, bool on_gpu) : on_gpu_(on_gpu) {
    if (!on_gpu) {
      data_ = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    } else if (world().allocate(&data_, bytes) != 0) {
      data_ = nullptr;
    }
    if (data_ == nullptr) std::abort();
  }
  Place(Place&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), on_gpu_(other.on_gpu_) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  Place& operator=(Place&&) = delete;
  ~Place() {
    if (on_gpu_ && data_ != nullptr) world().release(data_);
    if (!on_gpu_) std::free(data_);
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  bool on_gpu_;
};

// The operands of a problem in one kind of memory. What is only written begins as NaNs.
class Call {
 public:
  Call(const Problem& problem, bool on_gpu, Operands operands)
      : problem_(problem), operands_(std::move(operands)) {
    for (const Tensor& tensor : tensors_of(problem)) {
      places_.emplace_back(tensor.bytes(), on_gpu);
      std::memset(places_.back().data(), 0xff, tensor.bytes());
      set_pointer(operands_, tensor, places_.back().data());
      tensors_.push_back(tensor);
    }
  }
  void fill() {
    std::uniform_real_distribution<double> values(-1, 1);
    for (std::size_t n = 0; n < tensors_.size(); ++n) {
      if (tensors_[n].access == Access::write) continue;
      const auto elements = static_cast<std::int64_t>(tensors_[n].bytes()) /
                            static_cast<std::int64_t>(size_of(tensors_[n].dtype));
      for (std::int64_t x = 0; x < elements; ++x) {
        store_element(tensors_[n].dtype, places_[n].data(), x, values(world().random));
      }
    }
  }
  // Takes what is read here and has the same name there.
  void take(const Call& other) {
    for (std::size_t n = 0; n < tensors_.size(); ++n) {
      if (tensors_[n].access == Access::write) continue;
      const std::size_t from = other.find(tensors_[n].name);
      if (from == other.tensors_.size()) continue;
      ASSERT_EQ(tensors_[n].bytes(), other.tensors_[from].bytes());
      std::memcpy(places_[n].data(), other.places_[from].data(), tensors_[n].bytes());
    }
  }
  std::size_t find(std::string_view name) const {
    std::size_t n = 0;
    while (n < tensors_.size() && tensors_[n].name != name) ++n;
    return n;
  }
  const Problem& problem() const { return problem_; }
  const Operands& operands() const { return operands_; }

 private:
  Problem problem_;
  Operands operands_;
  std::vector<Tensor> tensors_;
  std::vector<Place> places_;
};

Dispatcher& dispatcher(const std::string& target) {
  DispatcherOptions options;
  options.target = target;
  options.build.cache.folder = TESSERA_BUILD "/kernel-cache";
  return *new Dispatcher(options);  // lives as long as its kernels are in use
}
Dispatcher& on_gpu() {
  static Dispatcher& gpu = dispatcher(world().target);
  return gpu;
}
Dispatcher& on_cpu() {
  static Dispatcher& cpu = dispatcher("");
  return cpu;
}

class EmulatedCalls : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!world().missing.empty()) GTEST_SKIP() << world().missing;
  }
  // The GPU reads what the CPU reads.
  template <class Empty>
  static void compare(const std::string& line, const Call* before = nullptr) {
    SCOPED_TRACE(line);
    const Problem problem = parse_problem(line);
    Call cpu(problem, false, Empty{}), gpu(problem, true, Empty{});
    cpu.fill();
    if (before != nullptr) cpu.take(*before);
    gpu.take(cpu);
    on_cpu().run(problem, cpu.operands());
    on_gpu().run(problem, gpu.operands());
    const Mismatch here = verify(problem, cpu.operands());
    const Mismatch there = verify(problem, gpu.operands());
    EXPECT_TRUE(here.ok) << "CPU: " << here.message;
    EXPECT_TRUE(there.ok) << world().target << ": " << there.message;
    EXPECT_EQ(here.checked, there.checked);
    EXPECT_GT(there.checked, 0);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, EmulatedCalls, testing::Values("fp16", "bf16"),
                         [](const auto& type) { return std::string(type.param); });

std::string number(std::int64_t least, std::int64_t most) {
  return std::to_string(between(least, most));
}

TEST_P(EmulatedCalls, MultiplyMatrices) {
  compare<GemmOperands>("gemm m=" + number(1, 90) + " n=" + number(1, 90) + " k=" + number(1, 120) +
                        " alpha=0.75 beta=-1.5 dtype=" + GetParam());
}

// A type takes every second entry of a list, and the seed says which: kernels take a second each
// to compile.
bool is_turn_of(std::size_t entry, const std::string& type) {
  return (entry + world().seed / 3) % 2 == (type == "fp16" ? 0U : 1U);
}

TEST_P(EmulatedCalls, ConvolveInAllDirections) {
  constexpr const char* kDirections[] = {"forward", "backward_data", "backward_weight"};
  for (std::size_t n = 0; n < std::size(kDirections); ++n) {
    if (!is_turn_of(n, GetParam())) continue;
    compare<ConvOperands>(std::string("conv direction=") + kDirections[n] + " n=" + number(1, 2) +
                          " c=" + std::to_string(8 * between(1, 4)) +
                          " k=" + std::to_string(8 * between(1, 5)) + " h=" + number(3, 9) +
                          " w=" + number(3, 9) + " y=3 x=3 pad_h=1 pad_w=1 dtype=" + GetParam());
  }
}

TEST_P(EmulatedCalls, AttendAndComputeGradients) {
  const std::string sizes = " heads=4 heads_kv=2 seqlen_q=" + number(1, 40) +
                            " seqlen_k=" + number(1, 70) +
                            " hdim=64 mask=bottom_right dtype=" + GetParam();
  compare<FmhaOperands>("fmha" + sizes + " lse=1");
  const Problem forward = parse_problem("fmha" + sizes + " lse=1");
  Call attended(forward, false, FmhaOperands{});
  attended.fill();
  on_cpu().run(forward, attended.operands());
  compare<FmhaOperands>("fmha kind=backward" + sizes, &attended);
}

TEST_P(EmulatedCalls, Normalise) {
  constexpr const char* kKinds[] = {"softmax", "rmsnorm scale=1", "layernorm scale=1 shift=1"};
  for (std::size_t n = 0; n < std::size(kKinds); ++n) {
    if (!is_turn_of(n, GetParam())) continue;
    compare<NormOperands>(std::string("norm kind=") + kKinds[n] + " rows=" + number(1, 12) +
                          " columns=" + number(1, 700) + " dtype=" + GetParam());
  }
}

template <class Run>
std::string refusal(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST_P(EmulatedCalls, RefuseMemoryOfTheHost) {
  const Problem problem = parse_problem(std::string("gemm m=20 n=16 k=24 dtype=") + GetParam());
  Call gpu(problem, true, GemmOperands{});
  gpu.fill();
  std::vector<std::uint16_t> host(20 * 24);
  auto operands = std::get<GemmOperands>(gpu.operands());
  operands.a = host.data();
  const std::string said = refusal([&] { on_gpu().run(problem, operands); });
  EXPECT_NE(said.find("the pointer 0x"), std::string::npos) << said;
  EXPECT_NE(said.find(" is not memory of a GPU; copy the operand to "), std::string::npos) << said;
}

TEST_P(EmulatedCalls, RefuseMisalignedOperands) {
  const Problem problem = parse_problem(std::string("gemm m=20 n=16 k=24 dtype=") + GetParam());
  Call gpu(problem, true, GemmOperands{});
  auto operands = std::get<GemmOperands>(gpu.operands());
  operands.b = static_cast<const char*>(operands.b) + 1;
  EXPECT_EQ(refusal([&] { on_gpu().run(problem, operands); }),
            std::string("gemm: b must be aligned to 2 bytes for ") + GetParam() +
                ", got an address 1 past a multiple of that");
}

}  // namespace
}  // namespace tessera::shared_test
