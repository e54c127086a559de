// The product's own GEMM on the emulator, as it is and with faults that a GPU might not show.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "bench.h"
#include "compile.h"
#include "tessera/device/hip/gemm/gemm_arguments.h"

namespace tessera::cdna_emulator {
namespace {

struct Shape {
  const char* type = "fp16";
  int tile_m = 128, tile_n = 64, tile_k = 64, waves_m = 2, waves_n = 2, side = 32;
  int buffers = 2, prefetch = 1;
  bool direct = false;
  int slices = 1;
  bool atomic = false;
};

std::string gemm_text(const Shape& s) {
  const auto number = [](const char* name, int value) {
    return "  static constexpr int " + std::string(name) + " = " + std::to_string(value) + ";\n";
  };
  const auto flag = [](const char* name, bool value) {
    return "  static constexpr bool " + std::string(name) + (value ? " = true;\n" : " = false;\n");
  };
  std::string text =
      "#include \"tessera/device/hip/gemm/mfma_gemm.h\"\nusing namespace tessera::device;\n"
      "struct Config {\n  using A = fp16; using B = fp16; using Acc = float; using Out = float;\n"
      "  using D = float;\n";
  text += number("kTileM", s.tile_m) + number("kTileN", s.tile_n) + number("kTileK", s.tile_k) +
          number("kWaveM", s.waves_m) + number("kWaveN", s.waves_n) + number("kWarpTileM", s.side) +
          number("kWarpTileN", s.side) + number("kWarpTileK", 8 * 64 / s.side) +
          number("kBuffers", s.buffers) + number("kPrefetch", s.prefetch) +
          flag("kDirectToLds", s.direct) + number("kSlices", s.slices) +
          flag("kAtomicSplit", s.atomic) + flag("kPersistent", false) +
          flag("kAKContiguous", true) + flag("kBKContiguous", true) + flag("kPreshuffled", false) +
          number("kNumSteps", 0) + number("kNumD", 0) + number("kXcds", 8);
  text +=
      "};\nusing Kernel = MfmaGemm<Config>;\nextern \"C\" {\n"
      "__attribute__((device, used)) extern const int gemm_abi = 1;\n"
      "__attribute__((global, amdgpu_flat_work_group_size(Kernel::kThreads, Kernel::kThreads), "
      "amdgpu_waves_per_eu(Kernel::kMinWaves, Kernel::kMaxWaves)))\n"
      "void gemm(HipGemmArguments arguments) { Kernel::run(arguments); }\n}\n";
  return text;
}

struct Sizes {
  int m, n, k, ld_a, ld_b;
};

struct Result {
  Outcome outcome;
  int wrong = 0;
};

// Operands of a product, and the product in double with the bounds of its errors.
struct Product {
  Sizes size;
  std::vector<u16> a, b;
  std::vector<double> wanted, bound;
};
std::vector<double> values_of(const std::vector<u16>& halves) {
  std::vector<double> values;
  values.reserve(halves.size());
  for (const u16 x : halves) values.push_back(static_cast<double>(half_to_float(x)));
  return values;
}
// Once for all runs on the same operands; tests are compiled without optimization.
void add_wanted(Product& p) {
  const std::vector<double> a = values_of(p.a), b = values_of(p.b);
  for (int i = 0; i < p.size.m; ++i) {
    for (int j = 0; j < p.size.n; ++j) {
      const double* const x = a.data() + i * p.size.ld_a;
      const double* const y = b.data() + j * p.size.ld_b;
      double sum = 0, size = 0;
      for (int k = 0; k < p.size.k; ++k) {
        const double product = x[k] * y[k];
        sum += product;
        size += product < 0 ? -product : product;
      }
      p.wanted.push_back(sum);
      // Sums of k floats: an error of half a unit of the largest sum each.
      p.bound.push_back(size * (p.size.k + 2) * 0x1p-24);
    }
  }
}
Product make_product(const Sizes& size, std::mt19937& random) {
  Product p{size, {}, {}, {}, {}};
  std::normal_distribution<float> normal;
  p.a.resize(static_cast<std::size_t>(size.ld_a) * static_cast<std::size_t>(size.m));
  p.b.resize(static_cast<std::size_t>(size.ld_b) * static_cast<std::size_t>(size.n));
  for (u16& x : p.a) x = static_cast<u16>(float_to_half(normal(random)));
  for (u16& x : p.b) x = static_cast<u16>(float_to_half(normal(random)));
  add_wanted(p);
  return p;
}
int count_wrong(const Product& p, const std::vector<float>& out) {
  int wrong = 0;
  for (std::size_t n = 0; n < out.size(); ++n) {
    const double error = static_cast<double>(out[n]) - p.wanted[n];
    if (!(std::fabs(error) <= p.bound[n])) ++wrong;
  }
  return wrong;
}

// What a launch writes.
struct Written {
  std::vector<float> out;
  std::vector<u8> workspace;
};

device::HipGemmArguments arguments_of(const Product& p, Written& written, u32 blocks) {
  device::HipGemmArguments arguments{};
  device::GemmArguments& g = arguments.gemm;
  g.m = p.size.m;
  g.n = p.size.n;
  g.k = p.size.k;
  g.batch = 1;
  g.a = p.a.data();
  g.b = p.b.data();
  g.out = written.out.data();
  g.ld_a = p.size.ld_a;
  g.ld_b = p.size.ld_b;
  g.ld_out = p.size.n;
  g.alpha = 1;
  arguments.workspace = written.workspace.data();
  arguments.partial_sums = device::kHipCounterBytes;
  arguments.partial_bytes = static_cast<i64>(written.workspace.size()) - device::kHipCounterBytes;
  arguments.raster_group = 4;
  arguments.blocks = static_cast<int>(blocks);
  return arguments;
}

Result run_gemm(const Program& program, const Shape& s, const Product& p, i64 more_rows = 0) {
  constexpr std::size_t kPartialBytes = std::size_t{1} << 22;
  Written written{std::vector<float>(p.wanted.size(), NAN),
                  std::vector<u8>(device::kHipCounterBytes + (s.slices > 1 ? kPartialBytes : 0))};
  const auto tiles = [](int size, int tile) { return static_cast<u32>((size + tile - 1) / tile); };
  Launch l;
  l.grid[0] = tiles(p.size.m, s.tile_m) * tiles(p.size.n, s.tile_n) * static_cast<u32>(s.slices);
  l.block[0] = static_cast<u32>(64 * s.waves_m * s.waves_n);
  device::HipGemmArguments arguments = arguments_of(p, written, l.grid[0]);
  arguments.gemm.m += more_rows;
  l.arguments = {reinterpret_cast<const u8*>(&arguments), sizeof arguments};
  Memory memory;
  const Image image = load_image(program.object, memory);
  memory.add(reinterpret_cast<u64>(p.a.data()), p.a.size() * 2, false);
  memory.add(reinterpret_cast<u64>(p.b.data()), p.b.size() * 2, false);
  memory.add(reinterpret_cast<u64>(written.out.data()), written.out.size() * 4);
  memory.add(reinterpret_cast<u64>(written.workspace.data()), written.workspace.size());
  Result r{run(program, image, *find_kernel(program.object, "gemm"), memory, l)};
  r.wrong = count_wrong(p, written.out);
  return r;
}

struct Compiled {
  std::vector<u8> file;
  std::string text;  // of the disassembly
};
Compiled compile_gemm(const Shape& s, const std::string& target,
                      const std::string& include = TESSERA_SOURCE "/src") {
  Compiled c{compile_hip(gemm_text(s), target, include), {}};
  if (!c.file.empty()) c.text = disassemble(c.file);
  return c;
}
Program program_of(const Compiled& c) { return make_program(read_code_object(c.file), c.text); }

double cycles_to_ideal(const Outcome& o) {
  return static_cast<double>(o.statistics.lds_cycles) /
         static_cast<double>(o.statistics.lds_ideal_cycles);
}

// Sizes that do not fill their tiles; lines that begin at 16 bytes and others.
std::vector<Sizes> ragged_sizes(std::mt19937& random) {
  std::vector<Sizes> all;
  for (int n = 0; n < 3; ++n) {
    const auto draw = [&](int most) { return 1 + static_cast<int>(random()) % most; };
    Sizes s{std::abs(draw(200)) + 1, std::abs(draw(150)) + 1, std::abs(draw(200)) + 1, 0, 0};
    const int unit = n == 0 ? 1 : 8;
    s.ld_a = (s.k + unit - 1) / unit * unit + unit;
    s.ld_b = s.ld_a + unit;
    all.push_back(s);
  }
  return all;
}

class Gemm : public ::testing::TestWithParam<const char*> {};

TEST_P(Gemm, IsRightForRaggedSizes) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  const std::string target = GetParam();
  std::vector<Shape> shapes = {{}, {.tile_m = 64, .side = 16, .buffers = 1, .prefetch = 2}};
  if (target == "gfx950") shapes.push_back({.buffers = 3, .prefetch = 0, .direct = true});
  for (const Shape& s : shapes) {
    const Program program = program_of(compile_gemm(s, target));
    for (const Sizes& size : ragged_sizes(random)) {
      const Result r = run_gemm(program, s, make_product(size, random));
      EXPECT_EQ(r.outcome.finding.text, "");
      EXPECT_EQ(r.wrong, 0) << size.m << "x" << size.n << "x" << size.k;
      EXPECT_LE(cycles_to_ideal(r.outcome), 1.05);
    }
  }
}

TEST_P(Gemm, AddsUpSlices) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  for (const bool atomic : {false, true}) {
    const Shape s{.slices = 3, .atomic = atomic};
    const Program program = program_of(compile_gemm(s, GetParam()));
    EXPECT_TRUE(program.has_global_atomics);
    const Result r = run_gemm(program, s, make_product({150, 70, 400, 400, 408}, random));
    EXPECT_EQ(r.outcome.finding.text, "");
    EXPECT_EQ(r.wrong, 0);
  }
}

// ---- faults ----

// How many lines that contain `what` have a finding of a kind, or wrong sums, when each alone is
// replaced.
struct Faults {
  int tried = 0, found = 0, wrong_only = 0;
  std::map<Finding::Kind, int> kinds;
};
template <class Change>
Faults seed_faults(const Compiled& good, const Shape& s, const Product& p, Change change) {
  Faults faults;
  for (std::size_t at = 0; at < good.text.size();) {
    const std::size_t end = good.text.find('\n', at);
    const std::string line = good.text.substr(at, end - at);
    Compiled bad = good;
    const std::string changed = change(line);
    if (changed != line) {
      bad.text.replace(at, line.size(), changed);
      const Result r = run_gemm(program_of(bad), s, p);
      ++faults.tried;
      ++faults.kinds[r.outcome.finding.kind];
      const bool finding = r.outcome.finding.kind != Finding::Kind::none;
      faults.found += finding || r.wrong != 0 ? 1 : 0;
      faults.wrong_only += !finding && r.wrong != 0 ? 1 : 0;
    }
    at = end + 1;
  }
  return faults;
}

std::string replaced(const std::string& line, std::string_view what, std::string_view by) {
  const std::size_t at = line.find(what);
  if (at == std::string::npos) return line;
  std::string changed = line;
  return changed.replace(at, what.size(), by);
}

// A product whose kernel is in its loop for several tiles and writes whole ones.
const Sizes kLong = {128, 64, 320, 320, 320};

TEST_P(Gemm, FindsEveryBarrierThatIsMissingInTheLoop) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  const Shape s{.buffers = 1};
  const Compiled good = compile_gemm(s, GetParam());
  const Product p = make_product(kLong, random);
  ASSERT_EQ(run_gemm(program_of(good), s, p).outcome.finding.text, "");
  Faults faults = seed_faults(good, s, p, [](const std::string& line) {
    return replaced(line, "s_barrier ", "s_nop 0   ");
  });
  EXPECT_GE(faults.kinds[Finding::Kind::race], 2);
}

TEST_P(Gemm, FindsWaitsThatAreMissing) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  const Shape s;
  const Compiled good = compile_gemm(s, GetParam());
  const Product p = make_product(kLong, random);
  for (const char* counter : {"vmcnt", "lgkmcnt"}) {
    Faults faults = seed_faults(good, s, p, [&](const std::string& line) {
      if (line.find("s_waitcnt") == std::string::npos) return line;
      const std::size_t at = line.find(counter);
      if (at == std::string::npos) return line;
      std::string changed = line;  // "vmcnt(0)" to "vmcnt(63)"
      return changed.replace(line.find('(', at), line.find(')', at) - line.find('(', at), "(63");
    });
    EXPECT_GE(faults.kinds[Finding::Kind::early_use] + faults.kinds[Finding::Kind::race], 3)
        << counter << " of " << faults.tried;
  }
}

TEST_P(Gemm, FindsWrongOperandsOfMfma) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  const Shape s{.tile_k = 32};
  const Compiled good = compile_gemm(s, GetParam());
  const Product p = make_product(kLong, random);
  Faults faults = seed_faults(good, s, p, [](const std::string& line) {
    const std::size_t mfma = line.find("v_mfma");
    if (mfma == std::string::npos) return line;
    // The second source becomes the first one.
    const std::size_t first = line.find(", ", mfma) + 2, second = line.find(", ", first) + 2;
    const std::size_t third = line.find(", ", second);
    std::string changed = line;
    return changed.replace(second, third - second, line.substr(first, second - 2 - first));
  });
  EXPECT_GE(faults.tried, 4);
  EXPECT_EQ(faults.found, faults.tried);
  EXPECT_EQ(faults.wrong_only, faults.tried);
}

// A copy of the device's headers in which one text is another.
std::string with_change(const char* header, const std::string& what, const std::string& by) {
  const auto to = scratch_folder() / ("changed" + std::to_string(std::hash<std::string>()(by)));
  std::filesystem::create_directories(to / "tessera");
  std::filesystem::copy(
      std::filesystem::path(TESSERA_SOURCE) / "src/tessera/device", to / "tessera/device",
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  const auto file = to / "tessera/device" / header;
  const auto bytes = read_bytes(file);
  std::string text(bytes.begin(), bytes.end());
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << header << " has no longer the text of this test: " << what;
  if (at != std::string::npos) text.replace(at, what.size(), by);
  std::ofstream(file) << text;
  return to.string();
}

TEST_P(Gemm, SeesThatTheExchangeOfChunksIsMissing) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  const Shape s;
  const std::string include =
      with_change("hip/lds_tile.h", "return number & (kExchanged - 1);", "return 0 * number;");
  const Program program = program_of(compile_gemm(s, GetParam(), include));
  const Result r = run_gemm(program, s, make_product(kLong, random));
  EXPECT_EQ(r.outcome.finding.text, "");
  EXPECT_EQ(r.wrong, 0);
  EXPECT_GE(cycles_to_ideal(r.outcome), 2.0);
}

TEST_P(Gemm, FindsAReadPastTheLastRow) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  const Shape s;
  const Program program = program_of(compile_gemm(s, GetParam()));
  // The kernel is told of rows that the operands do not have.
  const Result r = run_gemm(program, s, make_product({100, 64, 64, 64, 64}, random), 20);
  EXPECT_EQ(r.outcome.finding.kind, Finding::Kind::outside);
}

INSTANTIATE_TEST_SUITE_P(Cdna, Gemm, ::testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Direct, FindsAMissingWaitForLoadsToLds) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  const Shape s{.buffers = 2, .prefetch = 0, .direct = true};
  const Compiled good = compile_gemm(s, "gfx950");
  const Product p = make_product(kLong, random);
  ASSERT_EQ(run_gemm(program_of(good), s, p).outcome.finding.text, "");
  Faults faults = seed_faults(good, s, p, [](const std::string& line) {
    return replaced(line, "s_waitcnt vmcnt(0)", "s_nop 0           ");
  });
  EXPECT_GE(faults.kinds[Finding::Kind::early_use], 1);
}

}  // namespace
}  // namespace tessera::cdna_emulator
