// gpu_helper M N K [--validate]: one product of fp16 matrices of ones, as JSON on stdout.
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/tessera.hpp>

#include "dispatcher_libs.h"

namespace {

constexpr std::uint16_t kOne = 0x3C00;  // 1 in fp16
constexpr double kWrong = 0.02;         // of the wanted value, and more is wrong

// What A x B is: K in every element, rounded to fp16's largest number.
struct Checked {
  double max_error = 0;
  std::int64_t correct = 0;
  std::int64_t total = 0;
};

Checked check(const std::vector<std::uint16_t>& c, std::int64_t k) {
  Checked checked;
  checked.total = static_cast<std::int64_t>(c.size());
  const auto wanted = static_cast<double>(k);
  for (std::int64_t i = 0; i < checked.total; ++i) {
    const double error =
        std::abs(tessera::load_element(tessera::DType::fp16, c.data(), i) - wanted);
    if (error / wanted < kWrong) ++checked.correct;
    if (!(error <= checked.max_error)) checked.max_error = error;
  }
  return checked;
}

bool parse(const char* text, std::int64_t& number) {
  const char* end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, number);
  return error == std::errc() && last == end;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

int fail(const std::string& what) {
  std::printf("{\"error\": %s}\n", quoted(what).c_str());
  return 1;
}

struct Sizes {
  std::int64_t m = 0, n = 0, k = 0;
};

int run(const Sizes& sizes, bool validate) {
  if (dispatcher_init() != 0) return fail(dispatcher_last_error());
  char name[512];
  if (dispatcher_select_kernel(sizes.m, sizes.n, sizes.k, name, sizeof name) != 0) {
    std::fprintf(stderr, "%s\n", dispatcher_last_error());
    return fail("No kernel selected");
  }
  const std::vector<std::uint16_t> a(static_cast<std::size_t>(sizes.m * sizes.k), kOne);
  const std::vector<std::uint16_t> b(static_cast<std::size_t>(sizes.k * sizes.n), kOne);
  std::vector<std::uint16_t> c(static_cast<std::size_t>(sizes.m * sizes.n));
  float ms = 0;
  if (dispatcher_run_gemm(a.data(), b.data(), c.data(), sizes.m, sizes.n, sizes.k, &ms) != 0) {
    return fail(dispatcher_last_error());
  }
  const double flops = 2.0 * static_cast<double>(sizes.m) * static_cast<double>(sizes.n) *
                       static_cast<double>(sizes.k);
  const std::string kernel = quoted(name);
  std::printf("{\n  \"problem\": {\"M\": %lld, \"N\": %lld, \"K\": %lld},\n",
              static_cast<long long>(sizes.m), static_cast<long long>(sizes.n),
              static_cast<long long>(sizes.k));
  std::printf("  \"target\": %s,\n", quoted(dispatcher_target()).c_str());
  std::printf("  \"kernel\": %s,\n  \"selected_kernel\": %s,\n", kernel.c_str(), kernel.c_str());
  std::printf("  \"execution\": {\"time_ms\": %.6g, \"tflops\": %.6g, \"flops\": %.0f},\n", ms,
              ms > 0 ? flops / (static_cast<double>(ms) * 1e9) : 0.0, flops);
  bool right = true;
  if (validate) {
    const Checked checked = check(c, sizes.k);
    right = checked.correct == checked.total;
    const std::string error =
        std::isfinite(checked.max_error) ? std::to_string(checked.max_error) : std::string("null");
    std::printf(
        "  \"validation\": {\"accuracy\": %.6g, \"max_error\": %s, "
        "\"correct_elements\": %lld, \"total_elements\": %lld},\n",
        100.0 * static_cast<double>(checked.correct) / static_cast<double>(checked.total),
        error.c_str(), static_cast<long long>(checked.correct),
        static_cast<long long>(checked.total));
  }
  std::printf("  \"status\": \"%s\"\n}\n", right ? "success" : "failure");
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  bool validate = false, known = true;
  std::vector<const char*> numbers;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--validate") == 0) {
      validate = true;
    } else if (argv[i][0] == '-' && argv[i][1] == '-') {
      known = false;
    } else {
      numbers.push_back(argv[i]);
    }
  }
  if (!known || numbers.size() != 3 || !parse(numbers[0], sizes.m) || !parse(numbers[1], sizes.n) ||
      !parse(numbers[2], sizes.k)) {
    std::fprintf(stderr, "usage: gpu_helper M N K [--validate]\n");
    return 1;
  }
  try {
    return run(sizes, validate);
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return fail("there is not enough memory for matrices of these sizes; give smaller ones");
}
