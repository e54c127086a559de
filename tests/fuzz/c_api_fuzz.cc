// Throws mutated lines, JSON texts, options and operand lists at the C ABI: c_api_fuzz SECONDS
// [SEED]. Any answer is right but a crash, an exception, a failure without a sentence, or a result
// after a failure. Kernels are chosen for, never launched: operands are refused or the plan is not
// made.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "tessera/tessera.h"

namespace {

const std::vector<std::string> kSeeds = {
    "gemm m=128 n=3072 k=768 dtype=bf16 layout=rcr epilogue=bias+gelu",
    "gemm m=5 n=7 k=3 batch=4 batch_stride_b=0 alpha=0.5 beta=-1e3 ld_a=99 preshuffle=1",
    "gemm m=1 n=1 k=1 dtype=fp8,bf8 out=fp32 pointer_arrays=1 epilogue=multiply clamp_lo=nan",
    "norm kind=layernorm rows=512 columns=4096 dtype=fp16 scale=1 shift=1 residual=1 epsilon=0",
    R"({"op": "gemm", "m": 128, "n": 3072, "k": 768, "a": "bf16", "ld_d0": 4, "alpha": 1e39})",
    R"({"name": "mine", "target": "avx512", "groups": [{"op": "gemm", "dtype": "bf16"}]})",
    R"({"name": "r", "kernels": ["gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx512"]})",
    R"({"op": "norm", "sets": true, "where": ["kind=softmax"], "json": 1, "target": "sm90a"})",
    R"({"problem": "gemm m=1 n=2 k=3", "target": "generic", "top": 3, "threads": -1})",
};
const std::vector<std::string> kWords = {
    "m=",      "-1",      "0",      "9223372036854775807",
    "1e999",   "nan",     "dtype=", "int8",
    "{",       "}",       "[",      "]",
    "\"",      "\\u0000", ",",      ":",
    "*",       "null",    "gfx942", "\xff",
    "ld_",     "=",       " ",      "9999999999999999999",
    "true",    "x",       "--",     "op",
    "kernels", "\n",
};
// Commands that neither run kernels nor write files.
const std::vector<std::string> kCommands = {"list", "show", "explain", "problems", "targets", "x"};

class Fuzz {
 public:
  explicit Fuzz(std::uint64_t seed) : random_(seed) {}

  void once() {
    const std::string text = mutated(pick(kSeeds));
    problem(text);
    sets(text);
    options(text);
    command(text);
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  std::string mutated(std::string text) {
    for (std::size_t i = below(6); i > 0; --i) {
      const std::size_t at = below(text.size() + 1);
      const std::size_t length = below(8);
      switch (below(4)) {
        case 0:
          text.insert(at, pick(kWords));
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.replace(at, std::min(length, text.size() - at), pick(kWords));
          break;
        default:
          text.insert(at, text.substr(below(text.size() + 1), length));
          break;
      }
    }
    return text;
  }

  // A failure has a sentence, and hands nothing out. The result is a reference, because the call
  // that gives the status writes it, and arguments are evaluated in any order.
  template <class T>
  bool passed(tsr_status_t status, T* const& result) {
    if (status == TSR_OK) return result != nullptr;
    if (result != nullptr || tsr_error()[0] == '\0' || status == TSR_INTERNAL) {
      std::fprintf(stderr, "status %s: '%s'\n", tsr_status_name(status), tsr_error());
      std::abort();
    }
    return false;
  }
  void text_of(tsr_status_t status, char*& text) {
    passed(status, text);
    tsr_free(text);
    text = nullptr;
  }

  void problem(const std::string& text) {
    tsr_problem_t* made = nullptr;
    const bool is_json = below(2) == 0;
    if (!passed(is_json ? tsr_problem_from_json(text.c_str(), &made)
                        : tsr_problem_parse(text.c_str(), &made),
                made)) {
      return;
    }
    char* out = nullptr;
    text_of(tsr_problem_line(made, &out), out);
    text_of(tsr_problem_json(made, &out), out);
    text_of(tsr_problem_describe(made, &out), out);
    tsr_problem_set(made, mutated("layout").c_str(), mutated("rrr").c_str());
    tsr_problem_set_integer(made, mutated("m").c_str(), static_cast<std::int64_t>(random_()));
    text_of(tsr_problem_get(made, mutated("alpha").c_str(), &out), out);
    plan(made);
    tsr_problem_destroy(made);
  }

  void plan(const tsr_problem_t* problem) {
    tsr_dispatcher_options_t given = TSR_INIT(tsr_dispatcher_options_t);
    given.target = below(2) == 0 ? "gfx942" : "sm90a";  // not here: nothing is launched
    given.threads = static_cast<int>(below(4)) - 1;
    tsr_dispatcher_t* dispatcher = nullptr;
    if (!passed(tsr_dispatcher_create(&given, &dispatcher), dispatcher)) return;
    tsr_choose_options_t choice = TSR_INIT(tsr_choose_options_t);
    const std::string force = mutated("gemm_bf16_rcr_tmaws_128x256x64");
    if (below(4) == 0) choice.force = force.c_str();
    char* out = nullptr;
    text_of(tsr_choose(dispatcher, problem, &choice, &out), out);
    tsr_plan_t* made = nullptr;
    if (passed(tsr_plan(dispatcher, problem, &choice, &made), made)) {
      const void* operands[4] = {};
      const tsr_operand_t named[] = {{"a", nullptr}, {"zz", nullptr}, {nullptr, nullptr}};
      if (tsr_launch(made, operands, below(5), nullptr) == TSR_OK) std::abort();
      if (tsr_launch_named(made, named, below(4), nullptr) == TSR_OK) std::abort();
      tsr_plan_destroy(made);
    }
    tsr_dispatcher_destroy(dispatcher);
  }

  void sets(const std::string& text) {
    tsr_kernel_set_t* set = nullptr;
    char* out = nullptr;
    if (passed(tsr_kernel_set_from_json(text.c_str(), &set), set)) {
      text_of(tsr_kernel_set_json(set, &out), out);
    }
    tsr_registry_t* registry = nullptr;
    if (passed(tsr_registry_create("fuzz", nullptr, &registry), registry)) {
      tsr_registry_import(registry, text.c_str());
      if (set != nullptr) tsr_registry_declare(registry, set);
      text_of(tsr_registry_export(registry, &out), out);
    }
    tsr_registry_destroy(registry);
    tsr_kernel_set_destroy(set);
  }

  void options(const std::string& text) {
    tsr_launch_options_t given = TSR_INIT(tsr_launch_options_t);
    given.struct_size = text.size() * below(60);
    if (tsr_launch(nullptr, nullptr, 0, &given) == TSR_OK) std::abort();
  }

  void command(const std::string& text) {
    char* out = nullptr;
    text_of(tsr_command(pick(kCommands).c_str(), text.c_str(), nullptr, nullptr, &out), out);
  }

  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  const std::uint64_t seed =
      argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);  // also where it crashes
  Fuzz fuzz(seed);
  const auto begin = std::chrono::steady_clock::now();
  std::size_t count = 0;
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() <
         seconds) {
    fuzz.once();
    ++count;
  }
  std::printf("%zu inputs, no crash\n", count);
  return count > 0 ? 0 : 1;
}
