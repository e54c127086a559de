// What the tests of the public API share. Like the command line, they include tools.hpp and nothing
// else of the library, and link the static one.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tessera/tools.hpp>
#include <vector>

namespace tessera::api_test {

// A cache of its own, thrown away afterwards, and fresh operands. The generic row runs everywhere,
// and its names do not depend on the machine.
struct ApiTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-api-");
  std::uint64_t seed = std::random_device{}();

  ApiTest() {
    RecordProperty("seed", std::to_string(seed));
    runtime::set_default_threads(2);  // also where there is one processor only
  }
  ~ApiTest() override { remove_tree(folder); }

  jit::BuildOptions build_options() const {
    jit::BuildOptions build;
    build.cache.folder = folder / "cache";
    return build;
  }
  DispatcherOptions options(const std::string& target = "generic") const {
    DispatcherOptions o;
    o.target = target;
    o.build = build_options();
    return o;
  }
  measure::OwnedOperands operands_of(const Problem& problem) const {
    return measure::random_operands(problem, seed);
  }
};

inline GemmProblem small(std::int64_t m = 37) {
  return gemm_problem(DType::fp32, GemmLayout::rcr, m, 45, 61);
}

inline RunOptions with(int threads, const std::string& force = {}, bool verify = true) {
  RunOptions run;
  run.launch.threads = threads;
  run.force = force;
  run.verify = verify;
  return run;
}

// The bytes of a row-major m x n output without gaps.
inline std::string output_bytes(const GemmProblem& p, const measure::OwnedOperands& owned) {
  const void* out = std::get<GemmOperands>(owned.operands).out;
  return {static_cast<const char*>(out), static_cast<std::size_t>(p.m * p.n * size_of(p.out))};
}

// The code and the message of the tessera::Error that the call throws.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  } catch (const std::exception& error) {
    return std::string("not a tessera::Error: ") + error.what();
  }
  return "no error";
}

}  // namespace tessera::api_test
