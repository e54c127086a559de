// Whole expressions, compiled for each target and run by the emulator, against the same text
// compiled here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "bench.h"
#include "compile.h"

namespace tessera::cdna_emulator {
namespace {

// Expressions of a, b, c: random bits as u32, i32 (x, y, z), u64 (p, q) and floats of every size
// (f, g, h). Each gives 64 bits. The text is compiled twice: it names builtins of clang and GCC.
// clang-format takes the list for one statement.
// clang-format off
#define EXPRESSIONS(E) \
  E(a + b) E(a - b) E(a * b) E(a & (b | c)) E(a ^ ~b) E(a << (b & 31)) E(a >> (b & 31)) \
  E(x >> (b & 31)) E((u64)a * b >> 32) E((i64)x * y >> 32) E((u64)a * b + p) E((i64)x * y + q) \
  E(a / (b | 1)) E(a % (b | 1)) E(x / (y | 1)) E(p / (q | 1)) E((i64)p % ((i64)q | 1)) E(p + q) \
  E(p - q) E(p * q) E(p << (a & 63)) E(p >> (a & 63)) E((i64)p >> (a & 63)) E(a < b ? c : a) \
  E(x < y ? c : a) E(p < q ? p : q) E((i64)p < (i64)q ? q : p) E(f < g ? a : b) \
  E(f <= h ? a : b) E(!(f > g) ? a : b) E(f != g ? a : b) E(__builtin_popcount(a)) \
  E(__builtin_clz(a | 1)) E(__builtin_ctz(b | 0x80000000U)) E(__builtin_clzll(p | 1)) \
  E(__builtin_ctzll(q | 1ULL << 63)) E(__builtin_bswap32(a)) E(a >> 3 & 0x1ff) E(x << 5 >> 20) \
  E(a << 7 | b >> 25) E((a & b) | (~a & c)) E((a + b) << 3) E((a << 2) + b) E(a + b + c) \
  E((a ^ b) + c) E(a | b | c) E((a & 0xffffff) * (b & 0xffffff)) E((u16)(a + b)) E((u16)(a * b)) \
  E((i16)x >> (a & 15)) E((u8)a | (u32)(u8)b << 8) E((i64)(i8)a) E((u16)a << 16 | b >> 16) \
  E(x < 0 ? -x : x) E(a < 7 ? 7 : a > 1000 ? 1000 : a) E(x < -5 ? -5 : x > 99 ? 99 : x) \
  E(bits(f + g)) E(bits(f - g)) E(bits(f * g)) E(bits(__builtin_fmaf(f, g, h))) E(bits(f / g)) \
  E(bits(1.0F / g)) E(bits(-f)) E(bits(__builtin_fabsf(f))) E(bits(__builtin_floorf(f))) \
  E(bits(__builtin_ceilf(f))) E(bits(__builtin_truncf(f))) E(bits(__builtin_rintf(f))) \
  E(bits(__builtin_fminf(f, g))) E(bits(__builtin_fmaxf(f, g))) E(bits((float)a)) \
  E(bits((float)x)) E(bits((float)(u8)(a >> 8))) E(bits((float)(i8)a)) \
  E((u32)__builtin_fminf(__builtin_fabsf(f), 1e9F)) E((i32)__builtin_fmaxf(-1e9F, h * 1e-30F)) \
  E(bits((double)f)) E(bits((double)f * (double)g + (double)h)) E(bits((float)((double)f + g)))
// clang-format on

#define FUNCTIONS                 \
  using u8 = unsigned char;       \
  using i8 = signed char;         \
  using u16 = unsigned short;     \
  using i16 = short;              \
  using u32 = unsigned;           \
  using i32 = int;                \
  using u64 = unsigned long long; \
  using i64 = long long;          \
  struct Inputs {                 \
    u32 a, b, c;                  \
    float f, g, h;                \
    u64 p, q;                     \
  };

namespace expressions {
FUNCTIONS
u64 bits(float v) { return std::bit_cast<u32>(v); }
u64 bits(double v) { return std::bit_cast<u64>(v); }
#define COUNT(...) +1
constexpr int kCount = 0 EXPRESSIONS(COUNT);
#define STORE(...) out[n++] = (u64)(__VA_ARGS__);
void evaluate(const Inputs& in, u64* out) {
  const u32 a = in.a, b = in.b, c = in.c;
  const i32 x = (i32)a, y = (i32)b;
  const float f = in.f, g = in.g, h = in.h;
  const u64 p = in.p, q = in.q;
  int n = 0;
  EXPRESSIONS(STORE)
}
#define NAME(...) #__VA_ARGS__,
constexpr const char* kNames[] = {EXPRESSIONS(NAME)};
}  // namespace expressions

#define AS_TEXT_(...) #__VA_ARGS__
#define AS_TEXT(...) AS_TEXT_(__VA_ARGS__)

std::string device_text() {
  std::string text = AS_TEXT(FUNCTIONS);
  text +=
      "\n#define DEVICE __attribute__((device)) inline\n"
      "DEVICE u64 bits(float v) { return __builtin_bit_cast(u32, v); }\n"
      "DEVICE u64 bits(double v) { return __builtin_bit_cast(u64, v); }\n"
      "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))\n"
      "void all(const Inputs* inputs, u64* out) {\n#pragma clang fp contract(off)\n"
      "  const u32 t = __builtin_amdgcn_workgroup_id_x() * 64 + "
      "__builtin_amdgcn_workitem_id_x();\n"
      "  const Inputs in = inputs[t];\n"
      "  const u32 a = in.a, b = in.b, c = in.c; const i32 x = (i32)a, y = (i32)b;\n"
      "  const float f = in.f, g = in.g, h = in.h; const u64 p = in.p, q = in.q;\n";
  text += "  out += t * " + std::to_string(expressions::kCount) + "ULL;\n";
  for (const char* e : expressions::kNames) text += "  *out++ = (u64)(" + std::string(e) + ");\n";
  return text + "}\n";
}

bool both_nan(std::string_view expression, u64 got, u64 expected) {
  if (!expression.starts_with("bits(")) return false;
  const bool wide = expression.find("bits((double)") == 0;
  return wide ? std::isnan(as_double(got)) && std::isnan(as_double(expected))
              : std::isnan(as_float(static_cast<u32>(got))) &&
                    std::isnan(as_float(static_cast<u32>(expected)));
}

// Finite floats near 1 mostly, at times of any size.
float random_float(std::mt19937& random) {
  if (random() % 4 != 0) return std::normal_distribution<float>(0, 3)(random);
  const float x = as_float(static_cast<u32>(random()));
  return std::isfinite(x) && std::fabs(x) > 1e-18F && std::fabs(x) < 1e18F ? x : 1.5F;
}

struct Run {
  Program program;
  Memory memory;
  Image image;
};
std::unique_ptr<Run> load(const std::string& text, const std::string& target) {
  auto r = std::make_unique<Run>();
  r->program = read_program(compile_hip(text, target));
  r->image = load_image(r->program.object, r->memory);
  return r;
}
template <class T>
u64 add_memory(Run& r, std::vector<T>& v) {
  r.memory.add(reinterpret_cast<u64>(v.data()), v.size() * sizeof(T));
  return reinterpret_cast<u64>(v.data());
}
Outcome launch(Run& r, const char* kernel, u32 groups, u32 threads, const std::vector<u64>& words) {
  Launch l;
  l.grid[0] = groups;
  l.block[0] = threads;
  l.arguments = {reinterpret_cast<const u8*>(words.data()), words.size() * 8};
  return run(r.program, r.image, *find_kernel(r.program.object, kernel), r.memory, l);
}

class OnTarget : public ::testing::TestWithParam<const char*> {};

TEST_P(OnTarget, ExpressionsGiveWhatTheyGiveHere) {
  SKIP_WITHOUT_TOOLS();
  constexpr u32 kGroups = 8, kThreads = 64 * kGroups;
  auto random = fresh_random();
  std::vector<expressions::Inputs> inputs(kThreads);
  for (auto& in : inputs) {
    in.a = static_cast<u32>(random()) >> (random() % 32);
    in.b = static_cast<u32>(random()) >> (random() % 32);
    in.c = static_cast<u32>(random());
    in.f = random_float(random);
    in.g = random_float(random);
    in.h = random_float(random);
    in.p = join(static_cast<u32>(random()), static_cast<u32>(random())) >> (random() % 64);
    in.q = join(static_cast<u32>(random()), static_cast<u32>(random())) >> (random() % 64);
  }
  std::vector<u64> out(std::size_t{kThreads} * expressions::kCount);
  const auto r = load(device_text(), GetParam());
  const Outcome outcome =
      launch(*r, "all", kGroups, 64, {add_memory(*r, inputs), add_memory(*r, out)});
  ASSERT_EQ(outcome.finding.text, "");
  for (std::size_t t = 0; t < kThreads; ++t) {
    std::vector<expressions::u64> expected(expressions::kCount);
    expressions::evaluate(inputs[t], expected.data());
    for (std::size_t n = 0; n < expected.size(); ++n) {
      const u64 got = out[t * expected.size() + n];
      if (both_nan(expressions::kNames[n], got, expected[n])) continue;
      ASSERT_EQ(got, expected[n]) << expressions::kNames[n] << " of a " << inputs[t].a << " b "
                                  << inputs[t].b << " f " << inputs[t].f << " g " << inputs[t].g
                                  << " p " << inputs[t].p << " q " << inputs[t].q;
    }
  }
}

const char kHalves[] = R"(
using u32 = unsigned; using u16 = unsigned short;
using H2 = _Float16 __attribute__((ext_vector_type(2)));
extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))
void halves(const float* in, const float* other, u16* out) {
  const u32 t = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  const float x = in[t], y = other[t];
  const _Float16 h = (_Float16)x, g = (_Float16)y;
  out += t * 8;
  out[0] = __builtin_bit_cast(u16, h);
  out[1] = __builtin_bit_cast(u16, (_Float16)(h + g));
  out[2] = __builtin_bit_cast(u16, (_Float16)(h * g));
  out[3] = __builtin_bit_cast(u16, __builtin_fmaf16(h, g, h));
  out[4] = __builtin_bit_cast(u16, (__bf16)x);
  const H2 packed = H2{h, g} * H2{g, g} + H2{g, h};
  const _Float16 low = packed.x, high = packed.y;
  out[5] = __builtin_bit_cast(u16, low);
  out[6] = __builtin_bit_cast(u16, high);
  out[7] = __builtin_bit_cast(u16, (_Float16)(h < g ? h : g));
}
)";

TEST_P(OnTarget, HalvesRoundAsTheyShould) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  constexpr std::size_t kCount = 512;
  std::vector<float> x(kCount), y(kCount);
  for (std::size_t n = 0; n < kCount; ++n) {
    x[n] = random_float(random);
    y[n] = std::normal_distribution<float>()(random);
  }
  std::vector<u16> out(8 * kCount);
  const auto r = load(std::string("#pragma clang fp contract(fast)\n") + kHalves, GetParam());
  const Outcome outcome = launch(*r, "halves", kCount / 64, 64,
                                 {add_memory(*r, x), add_memory(*r, y), add_memory(*r, out)});
  ASSERT_EQ(outcome.finding.text, "");
  for (std::size_t n = 0; n < kCount; ++n) {
    const u32 h = float_to_half(x[n]), g = float_to_half(y[n]);
    const double dh = static_cast<double>(half_to_float(h)),
                 dg = static_cast<double>(half_to_float(g));
    const u32 expected[] = {h,
                            double_to_half(dh + dg),
                            double_to_half(dh * dg),
                            double_to_half(dh * dg + dh),
                            float_to_bf16(x[n]),
                            double_to_half(dh * dg + dg),
                            double_to_half(dg * dg + dh),
                            dh < dg ? h : g};
    for (std::size_t k = 0; k < 8; ++k) {
      ASSERT_EQ(out[8 * n + k], expected[k]) << k << " of " << x[n] << " and " << y[n];
    }
  }
}

const char kLanesText[] = R"(
using u32 = unsigned;
extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))
void lanes(const u32* in, u32* out) {
  const u32 t = __builtin_amdgcn_workitem_id_x();
  const u32 x = in[t];
  out += t * 8;
  out[0] = __builtin_amdgcn_readfirstlane(x);
  out[1] = __builtin_amdgcn_readlane(x, 17);
  out[2] = __builtin_amdgcn_ds_bpermute(4 * ((t * 7 + 3) % 64), x);
  out[3] = __builtin_amdgcn_mbcnt_hi(~0U, __builtin_amdgcn_mbcnt_lo(~0U, 0));
  const unsigned long odd = __builtin_amdgcn_ballot_w64(x & 1);
  out[4] = (u32)odd;
  out[5] = (u32)(odd >> 32);
  out[6] = __builtin_amdgcn_update_dpp(0, x, 0x111, 0xf, 0xf, true);
  out[7] = __builtin_amdgcn_perm(x, in[t ^ 1], 0x01060300);
}
)";

TEST_P(OnTarget, LanesGiveEachOtherValues) {
  SKIP_WITHOUT_TOOLS();
  if (find_target(GetParam())->lanes != 64) GTEST_SKIP() << "its waves have 32 lanes";
  auto random = fresh_random();
  std::vector<u32> in(64), out(512);
  u64 odd = 0;
  for (std::size_t l = 0; l < 64; ++l) {
    in[l] = static_cast<u32>(random());
    odd |= u64{in[l] & 1U} << l;
  }
  const auto r = load(kLanesText, GetParam());
  const Outcome outcome = launch(*r, "lanes", 1, 64, {add_memory(*r, in), add_memory(*r, out)});
  ASSERT_EQ(outcome.finding.text, "");
  for (std::size_t l = 0; l < 64; ++l) {
    const u32 other = in[l ^ 1U];
    const u32 bytes = (other & 0xffU) | (other >> 24) << 8 | (in[l] >> 16 & 0xffU) << 16 |
                      (other >> 8 & 0xffU) << 24;
    const u32 expected[] = {in[0],
                            in[17],
                            in[(l * 7 + 3) % 64],
                            static_cast<u32>(l),
                            static_cast<u32>(odd),
                            static_cast<u32>(odd >> 32),
                            l % 16 == 0 ? 0 : in[l - 1],
                            bytes};
    for (std::size_t k = 0; k < 8; ++k)
      ASSERT_EQ(out[8 * l + k], expected[k]) << k << " lane " << l;
  }
}

const char kFp8Text[] = R"(
using u32 = unsigned;
extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))
void fp8(const float* in, u32* packed, float* back) {
  const u32 t = __builtin_amdgcn_workitem_id_x();
  int word = __builtin_amdgcn_cvt_pk_fp8_f32(in[4 * t], in[4 * t + 1], 0, false);
  word = __builtin_amdgcn_cvt_pk_fp8_f32(in[4 * t + 2], in[4 * t + 3], word, true);
  packed[2 * t] = word;
  packed[2 * t + 1] = __builtin_amdgcn_cvt_pk_bf8_f32(in[4 * t], in[4 * t + 1], 0, false);
  back[2 * t] = __builtin_amdgcn_cvt_f32_fp8(word, 2);
  back[2 * t + 1] = __builtin_amdgcn_cvt_pk_f32_bf8(packed[2 * t + 1], false)[1];
}
)";

TEST_P(OnTarget, Fp8HasTheTargetsEncoding) {
  SKIP_WITHOUT_TOOLS();
  const std::string target = GetParam();
  if (target == "gfx90a" || target == "gfx1100") GTEST_SKIP() << target << " has no 8-bit floats";
  auto random = fresh_random();
  std::vector<float> in(256), back(128);
  for (float& x : in) x = std::normal_distribution<float>(0, 20)(random);
  std::vector<u32> packed(128);
  const auto r = load(kFp8Text, target);
  const Outcome outcome =
      launch(*r, "fp8", 1, 64, {add_memory(*r, in), add_memory(*r, packed), add_memory(*r, back)});
  ASSERT_EQ(outcome.finding.text, "");
  const bool ocp = target == "gfx950" || target == "gfx1201";
  const Fp8 fp8 = ocp ? Fp8::e4m3_ocp : Fp8::e4m3_fnuz, bf8 = ocp ? Fp8::e5m2_ocp : Fp8::e5m2_fnuz;
  for (std::size_t l = 0; l < 64; ++l) {
    u32 word = 0;
    for (std::size_t k = 0; k < 4; ++k) word |= float_to_fp8(in[4 * l + k], fp8, false) << (8 * k);
    ASSERT_EQ(packed[2 * l], word);
    const u32 both = float_to_fp8(in[4 * l], bf8, false) | float_to_fp8(in[4 * l + 1], bf8, false)
                                                               << 8;
    ASSERT_EQ(packed[2 * l + 1] & 0xffffU, both);
    ASSERT_EQ(back[2 * l], fp8_values(fp8)[word >> 16 & 0xffU]);
    ASSERT_EQ(back[2 * l + 1], fp8_values(bf8)[both >> 8]);
  }
}

TEST(Bytes, ProductsAreAddedToTheResult) {
  const auto b = make_bench("gfx942");
  auto random = fresh_random();
  for (int reg = 1; reg <= 3; ++reg) {
    for (int l = 0; l < 64; ++l) b->wave->vector(reg)[l] = static_cast<u32>(random());
  }
  std::vector<u32> expected(64);
  for (std::size_t l = 0; l < 64; ++l) {
    i8 x[4], y[4];
    std::memcpy(x, &b->wave->vector(2)[l], 4);
    std::memcpy(y, &b->wave->vector(3)[l], 4);
    expected[l] = b->wave->vector(1)[l];
    for (int n = 0; n < 4; ++n) expected[l] += static_cast<u32>(int{x[n]} * int{y[n]});
  }
  run_line(*b, "v_dot4c_i32_i8_e32 v1, v2, v3");
  for (std::size_t l = 0; l < 64; ++l) EXPECT_EQ(b->wave->vector(1)[l], expected[l]) << l;
}

const char kBitText[] = R"(
using u32 = unsigned;
extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))
void bits(const u32* in, u32* out) {
  const u32 t = __builtin_amdgcn_workitem_id_x();
  const u32 a = in[3 * t], b = in[3 * t + 1], c = in[3 * t + 2];
  u32 whole, half;
  asm("v_bitop3_b32 %0, %1, %2, %3 bitop3:0xc8" : "=v"(whole) : "v"(a), "v"(b), "v"(c));
  asm("v_bitop3_b16 %0, %1, %2, %3 bitop3:0x5e" : "=v"(half) : "v"(a), "v"(b), "v"(c));
  out[2 * t] = whole;
  out[2 * t + 1] = half;
}
)";

TEST(OnGfx950, BitsFollowATruthTable) {
  SKIP_WITHOUT_TOOLS();
  auto random = fresh_random();
  std::vector<u32> in(192), out(128);
  for (u32& x : in) x = static_cast<u32>(random());
  const auto r = load(kBitText, "gfx950");
  const Outcome outcome = launch(*r, "bits", 1, 64, {add_memory(*r, in), add_memory(*r, out)});
  ASSERT_EQ(outcome.finding.text, "");
  const auto row = [](u32 table, u32 a, u32 b, u32 c) { return table >> (4 * a + 2 * b + c) & 1U; };
  for (std::size_t l = 0; l < 64; ++l) {
    u32 whole = 0, half = 0;
    for (u32 bit = 0; bit < 32; ++bit) {
      const auto of = [&](std::size_t n) { return in[3 * l + n] >> bit & 1U; };
      whole |= row(0xc8, of(0), of(1), of(2)) << bit;
      if (bit < 16) half |= row(0x5e, of(0), of(1), of(2)) << bit;
    }
    ASSERT_EQ(out[2 * l], whole);
    ASSERT_EQ(out[2 * l + 1], half);
  }
}

const char kLanesOf32Text[] = R"(
using u32 = unsigned;
extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))
void lanes(const u32* in, u32* out) {
  const u32 t = __builtin_amdgcn_workitem_id_x();
  const u32 x = in[t];
  out += t * 8;
  out[0] = __builtin_amdgcn_readfirstlane(x);
  out[1] = __builtin_amdgcn_readlane(x, 17);
  out[2] = __builtin_amdgcn_ds_bpermute(4 * ((t * 7 + 3) % 32), x);
  out[3] = __builtin_amdgcn_mbcnt_lo(~0U, 0);
  out[4] = __builtin_amdgcn_ballot_w32(x & 1);
  out[5] = __builtin_amdgcn_permlanex16(0, x, 0x76543210, 0xfedcba98, false, false);
  out[6] = __builtin_amdgcn_update_dpp(0, x, 0x111, 0xf, 0xf, true);
  out[7] = x < 0x80000000U && t % 3 != 0 ? __builtin_amdgcn_readfirstlane(t) : 77;
}
)";

// Two waves of 32 lanes, which know nothing of each other.
TEST_P(OnTarget, LanesOf32GiveEachOtherValues) {
  SKIP_WITHOUT_TOOLS();
  if (find_target(GetParam())->lanes != 32) GTEST_SKIP() << "its waves have 64 lanes";
  auto random = fresh_random();
  std::vector<u32> in(64), out(512);
  for (u32& x : in) x = static_cast<u32>(random());
  const auto r = load(kLanesOf32Text, GetParam());
  const Outcome outcome = launch(*r, "lanes", 1, 64, {add_memory(*r, in), add_memory(*r, out)});
  ASSERT_EQ(outcome.finding.text, "");
  for (std::size_t first = 0; first < 64; first += 32) {
    const auto takes = [&](std::size_t t) { return in[t] < 0x80000000U && t % 3 != 0; };
    u32 odd = 0;
    std::size_t first_taken = first;
    while (first_taken < first + 31 && !takes(first_taken)) ++first_taken;
    for (std::size_t l = 0; l < 32; ++l) odd |= (in[first + l] & 1U) << l;
    for (std::size_t l = 0; l < 32; ++l) {
      const std::size_t t = first + l;
      const u32 expected[] = {in[first],
                              in[first + 17],
                              in[first + (l * 7 + first * 7 + 3) % 32],
                              static_cast<u32>(l),
                              odd,
                              in[first + (l ^ 16)],
                              l % 16 == 0 ? 0 : in[t - 1],
                              takes(t) ? static_cast<u32>(first_taken) : 77};
      for (std::size_t k = 0; k < 8; ++k) ASSERT_EQ(out[8 * t + k], expected[k]) << k << " " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rdna, OnTarget, ::testing::Values("gfx1100", "gfx1201"),
                         [](const auto& param) { return std::string(param.param); });
INSTANTIATE_TEST_SUITE_P(Cdna, OnTarget, ::testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace tessera::cdna_emulator
