// Kernels as hipDNN would launch them: the code object has the parameters that the descriptors
// list, and a launch that only the descriptors describe gives the right result on the emulator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "hip/gemm/emulated_gemm.h"
#include "host/registry/hipdnn_expressions.h"
#include "tessera/registry/hipdnn.h"

namespace tessera {
namespace {

using hipdnn::Arithmetic;
using hipdnn::Environment;
using hipdnn::Evaluator;
using hipdnn::Json;

constexpr std::size_t kKernels = 3;  // of each target, other ones in each run
constexpr int kGraphs = 3;           // of each kernel

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// The note of a code object that says what its kernels are: MessagePack after a header whose type
// is 32 and whose owner is AMDGPU.
Json metadata_of(const std::string& object) {
  const std::string owner("AMDGPU\0", 7);
  for (std::size_t at = object.find(owner); at != std::string::npos;
       at = object.find(owner, at + 1)) {
    if (at < 12 || word_at(object, at - 12) != owner.size() || word_at(object, at - 4) != 32) {
      continue;
    }
    const std::size_t size = word_at(object, at - 8), start = at + 8;
    return Json::from_msgpack(object.substr(start, size));
  }
  return nullptr;
}

// The arguments that the caller gives, without those that the compiler adds.
Json parameters_of(const std::string& object, const std::string& kernel) {
  Json parameters = Json::array();
  const Json metadata = metadata_of(object);
  for (const Json& each : metadata.at("amdhsa.kernels")) {
    if (each[".name"] != kernel) continue;
    for (const Json& argument : each[".args"]) {
      const auto kind = argument[".value_kind"].get<std::string>();
      if (kind.starts_with("hidden_")) continue;
      parameters.push_back({kind, argument[".size"], argument[".offset"]});
    }
  }
  return parameters;
}

Json described_parameters(const Json& dispatch) {
  Json parameters = Json::array();
  std::size_t end = 0;
  for (const Json& argument : dispatch["args_signature"]) {
    const bool is_pointer = argument["kind"] == "pointer";
    const std::size_t size = !is_pointer && argument["type"] == "i32" ? 4 : 8;
    const std::size_t offset = (end + size - 1) / size * size;
    parameters.push_back({is_pointer ? "global_buffer" : "by_value", size, offset});
    end = offset + size;
  }
  return parameters;
}

class EmulatedHipdnn : public EmulatedGemm {
 protected:
  // A problem that a graph can say: no C, no scales, no arrays of pointers, nothing empty.
  GemmProblem graph_problem(const KernelSpec& spec) {
    GemmProblem p = problem_for(spec);
    p.alpha = 1, p.beta = 0, p.pointer_arrays = false;
    if (p.k == 0) {  // whose gaps lie beside rows of no elements
      const GemmProblem usual;
      p.k = 1, p.ld_a = usual.ld_a, p.ld_b = usual.ld_b;
    }
    return with_strides(p);
  }

  // Tensors of three dimensions, the batch first.
  Environment environment_of(const GemmProblem& p, const Json& metadata) const {
    Environment all = {{"$graph.node_count", 1}, {"$matmul.compute_data_type", metadata["acc"]}};
    const auto add = [&](const std::string& name, const std::array<std::int64_t, 3>& dims,
                         std::int64_t ld, std::int64_t apart, bool by_row) {
      const std::int64_t strides[] = {apart, by_row ? ld : 1, by_row ? 1 : ld};
      all["$" + name + ".rank"] = 3;
      all["$" + name + ".dtype"] = metadata[name];
      for (std::size_t i = 0; i < dims.size(); ++i) {
        all[fmt::format("${}.dims[{}]", name, i)] = dims[i];
        all[fmt::format("${}.strides[{}]", name, i)] = strides[i];
      }
    };
    add("a", {p.batch, p.m, p.k}, p.ld_a, p.batch_stride_a, a_is_row_major(p.layout));
    add("b", {p.batch, p.k, p.n}, p.ld_b, p.batch_stride_b, b_is_row_major(p.layout));
    add("c", {p.batch, p.m, p.n}, p.ld_out, p.batch_stride_out, true);
    for (const auto& [name, value] : metadata.items()) all["$kernel." + name] = value;
    return all;
  }

  static Launch launch_of(const Json& dispatch, const Evaluator& evaluator, const GemmOperands& o) {
    const hipdnn::DescribedLaunch said =
        hipdnn::launch_of(dispatch, evaluator, {{"$a", o.a}, {"$b", o.b}, {"$c", o.out}});
    Launch launch;
    launch.arguments.assign(said.arguments, 0);
    Step step;
    for (std::size_t i = 0; i < 3; ++i) {
      step.grid[i] = static_cast<unsigned>(said.grid[i]);
      step.block[i] = static_cast<unsigned>(said.block[i]);
    }
    launch.steps.push(step);
    return launch;
  }

  void check_graph(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel,
                   const Json& criteria, const Json& dispatch, const Json& metadata) {
    const GemmProblem p = graph_problem(spec);
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("'{}', operands of seed {}", to_string(Problem(p)), seed));
    const measure::OwnedOperands owned = measure::random_operands(p, seed, 1, target_.fp8_encoding);
    const Reference wanted = family_.reference(p, owned.operands, {.fp8 = target_.fp8_encoding});
    const Environment environment = environment_of(p, metadata);
    const Evaluator evaluator(environment, Arithmetic::doubles);
    ASSERT_TRUE(evaluator.accepts(criteria));
    emulator::Memory memory;
    add_operands(owned, memory);
    const Launch launch = launch_of(dispatch, evaluator, std::get<GemmOperands>(owned.operands));
    ASSERT_EQ(kernel.run(name_of(spec), source, launch, memory, 1), "");
    const Mismatch mismatch = family_.compare(p, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
    count_problem(p, mismatch.checked);
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedHipdnn,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(EmulatedHipdnn, KernelsComputeAsTheirDescriptorsLaunchThem) {
  std::vector<KernelSpec> specs = essential([](const KernelSpec& spec) {
    const Algorithm& a = spec.algorithm;
    const auto& s = std::get<GemmSignature>(spec.signature);
    return a.slices == 1 && !a.streamk && !a.persistent && !s.preshuffled_b &&
           num_ops(s.epilogue) == 0 && s.a != DType::tf32;
  });
  std::shuffle(specs.begin(), specs.end(), random_);
  specs.resize(std::min(specs.size(), kKernels));
  const auto texts = describe_for_hipdnn(
      specs, target_, [](const KernelSpec& spec) { return name_of(spec) + ".hsaco"; });
  const Json criteria = Json::parse(texts.at("tessera_gemm.umd.json"))["criteria"];
  const Json dispatch = Json::parse(texts.at("tessera_gemm.udd.json"));
  const Json pack = Json::parse(texts.at("tessera_gemm_" + target_.name + ".kdp.json"));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    SCOPED_TRACE(name_of(specs[i]));
    const Source source = family_.hipdnn_kernel(specs[i], target_).source;
    const std::string object = read_file(builder().build(source, target_).binary);
    EXPECT_EQ(parameters_of(object, name_of(specs[i])), described_parameters(dispatch));
    EmulatedKernel kernel(object);
    expect_lean(specs[i], source, kernel);
    for (int n = 0; n < kGraphs; ++n) {
      check_graph(specs[i], source, kernel, criteria, dispatch,
                  pack["kernelDescriptors"][i]["metadata"]);
    }
  }
  EXPECT_EQ(problems_, static_cast<int>(specs.size()) * kGraphs);
}

}  // namespace
}  // namespace tessera
