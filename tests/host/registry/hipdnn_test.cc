// The folder for hipDNN: its form, what it refuses, and that a launch as its descriptors say it is
// the library's own, on random graphs.
#include "tessera/registry/hipdnn.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "hipdnn_expressions.h"
#include "hipdnn_graphs.h"
#include "support.h"
#include "tessera/families/operations.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

using hipdnn::Arithmetic;
using hipdnn::DescribedLaunch;
using hipdnn::Environment;
using hipdnn::Evaluator;
using hipdnn::Graph;
using hipdnn::GraphDraw;
using hipdnn::Json;

// ---- kernels and their descriptors ----

std::vector<KernelSpec> essential_gemms(const Target& target) {
  std::vector<KernelSpec> specs;
  for (const std::string& set : preselected_names(Op::gemm)) {
    if (!set.ends_with("_essential")) continue;
    try {
      for (KernelSpec& spec : preselected(Op::gemm, set, target)) specs.push_back(std::move(spec));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
    }
  }
  return specs;
}

std::vector<KernelSpec> expressible_gemms(const Target& target) {
  std::vector<KernelSpec> specs;
  std::set<std::string> names;
  for (KernelSpec& spec : essential_gemms(target)) {
    const bool is_new = names.insert(name_of(spec)).second;
    if (is_new && family_of(spec).hipdnn_kernel(spec, target).refusal.empty()) {
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

std::string file_of(const KernelSpec& spec) { return "code_objects/" + name_of(spec) + ".hsaco"; }

struct Descriptors {
  Json kmd, uhd, ued, umd, udd, kdp;
};
Descriptors descriptors_of(const std::vector<KernelSpec>& specs, const Target& target) {
  const auto texts = describe_for_hipdnn(specs, target, file_of);
  EXPECT_EQ(texts.size(), 6U);
  const auto read = [&](const std::string& name) { return Json::parse(texts.at(name)); };
  return {read("tessera_gemm.kmd.json"), read("tessera_gemm.uhd.json"),
          read("tessera_gemm.ued.json"), read("tessera_gemm.umd.json"),
          read("tessera_gemm.udd.json"), read("tessera_gemm_" + target.name + ".kdp.json")};
}

// ---- the form ----

class HipdnnFolder : public testing::TestWithParam<std::string> {
 protected:
  Target target_ = load_target(GetParam());
  std::vector<KernelSpec> specs_ = expressible_gemms(target_);
};

INSTANTIATE_TEST_SUITE_P(Targets, HipdnnFolder,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

void expect_identified(const Json& descriptor) {
  static const std::regex kUuid(
      "[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  EXPECT_TRUE(std::regex_match(descriptor["id"].get<std::string>(), kUuid)) << descriptor["id"];
  EXPECT_FALSE(descriptor["name"].get<std::string>().empty());
  EXPECT_EQ(descriptor["provenance"]["state"], "experimental");
  EXPECT_EQ(descriptor["provenance"]["timed"], "never");
}

TEST_P(HipdnnFolder, HasTheFieldsThatTheSchemasRequire) {
  const Descriptors all = descriptors_of(specs_, target_);
  using Keys = std::set<std::string>;
  EXPECT_EQ(keys_of(all.kmd), (Keys{"version", "id", "name", "fields", "provenance"}));
  EXPECT_EQ(keys_of(all.uhd),
            (Keys{"version", "id", "name", "adapter", "static_order", "provenance"}));
  EXPECT_EQ(keys_of(all.ued), (Keys{"version", "id", "name", "sdk_version", "graph_match",
                                    "metadata", "heuristic", "provenance"}));
  EXPECT_EQ(keys_of(all.umd), (Keys{"version", "id", "name", "scope", "criteria", "provenance"}));
  EXPECT_EQ(keys_of(all.udd), (Keys{"version", "id", "name", "grid", "block", "shared_mem_bytes",
                                    "workspace_bytes", "args_signature", "provenance"}));
  EXPECT_EQ(keys_of(all.kdp), (Keys{"version", "id", "name", "arch", "matchers", "engine",
                                    "dispatch", "kernelDescriptors", "provenance"}));
  for (const Json& each : {all.kmd, all.uhd, all.ued, all.umd, all.udd, all.kdp}) {
    EXPECT_EQ(each["version"], "1.0");
    expect_identified(each);
  }
  EXPECT_TRUE(std::regex_match(all.ued["name"].get<std::string>(),
                               std::regex("[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+")));
  EXPECT_EQ(all.ued["metadata"], all.kmd["id"]);
  EXPECT_EQ(all.ued["heuristic"], all.uhd["id"]);
  EXPECT_EQ(all.kdp["engine"], all.ued["id"]);
  EXPECT_EQ(all.kdp["dispatch"], all.udd["id"]);
  EXPECT_EQ(all.kdp["matchers"], Json::array({all.umd["id"]}));
  EXPECT_EQ(all.kdp["arch"], Json::array({target_.name}));
  EXPECT_EQ(all.uhd["adapter"], "static_order");
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "string") return value.is_string() && !value.get<std::string>().empty();
  return type == "int" ? value.is_number_integer() : type == "bool" && value.is_boolean();
}

TEST_P(HipdnnFolder, HasEveryFieldOfEveryKernelAndNoTwoAlike) {
  const Descriptors all = descriptors_of(specs_, target_);
  ASSERT_EQ(all.kdp["kernelDescriptors"].size(), specs_.size());
  std::set<Json> alike;
  std::set<std::string> ids;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const Json& kernel = all.kdp["kernelDescriptors"][i];
    expect_identified(kernel);
    EXPECT_EQ(kernel["name"], name_of(specs_[i]));
    EXPECT_EQ(kernel["arch"], Json::array({target_.name}));
    EXPECT_EQ(
        kernel["kernel_source"],
        (Json{{"kind", "hsaco"}, {"file", file_of(specs_[i])}, {"symbol", name_of(specs_[i])}}));
    EXPECT_TRUE(kernel["priority"].is_number_integer());
    EXPECT_GE(kernel["priority"], 1);
    EXPECT_LE(kernel["priority"], 1000);
    ASSERT_EQ(kernel["metadata"].size(), all.kmd["fields"].size());
    for (const Json& field : all.kmd["fields"]) {
      EXPECT_TRUE(has_type(kernel["metadata"].at(field["name"]), field["type"])) << field;
    }
    EXPECT_TRUE(alike.insert(kernel["metadata"]).second);
    EXPECT_TRUE(ids.insert(kernel["id"]).second);
  }
}

// The operators of RFC 0018 with the number of their operands; 0 stands for two or more.
const std::map<std::string, std::size_t> kOperators = {
    {"and", 0}, {"or", 0}, {"==", 2},  {"<=", 2},  {">=", 2},       {"in", 2}, {"+", 0},
    {"*", 0},   {"-", 2},  {"min", 0}, {"max", 0}, {"ceil_div", 2}, {"if", 3}};

void expect_expression(const Json& expression, const std::set<std::string>& fields) {
  static const std::regex kPublished(
      R"(\$(a|b|c)\.(rank|dtype|(dims|strides)\[[012]\])|\$graph\.node_count)"
      R"(|\$matmul\.compute_data_type|\$kernel\.\w+)");
  if (expression.is_string()) {
    const auto text = expression.get<std::string>();
    EXPECT_TRUE(std::regex_match(text, kPublished)) << text;
    if (text.starts_with("$kernel.")) {
      EXPECT_TRUE(fields.contains(text.substr(8))) << text;
    }
    return;
  }
  if (!expression.is_object()) return;
  ASSERT_EQ(expression.size(), 1U) << expression;
  const auto op = kOperators.find(expression.begin().key());
  ASSERT_NE(op, kOperators.end()) << expression;
  const Json& operands = expression.begin().value();
  if (op->second > 0) {
    EXPECT_EQ(operands.size(), op->second) << expression;
  }
  if (op->second == 0) {
    EXPECT_GE(operands.size(), 2U) << expression;
  }
  for (const Json& operand : operands) expect_expression(operand, fields);
}

TEST_P(HipdnnFolder, ReadsOnlyWhatIsPublishedByOperatorsThatExist) {
  const Descriptors all = descriptors_of(specs_, target_);
  std::set<std::string> fields;
  for (const Json& field : all.kmd["fields"]) fields.insert(field["name"]);
  expect_expression(all.umd["criteria"], fields);
  for (const char* const place : {"grid", "block"}) {
    for (const char* const axis : {"x", "y", "z"}) expect_expression(all.udd[place][axis], fields);
  }
  std::set<std::string> names;
  for (const Json& argument : all.udd["args_signature"]) {
    EXPECT_TRUE(names.insert(argument["name"]).second) << argument;
    if (argument["kind"] == "pointer") {
      EXPECT_EQ(argument["source"]["from"], "tensor");
      continue;
    }
    EXPECT_EQ(argument["kind"], "scalar");
    EXPECT_TRUE(argument["type"] == "i64" || argument["type"] == "i32");
    EXPECT_EQ(argument["source"]["from"], "expr");
    expect_expression(argument["source"]["expr"], fields);
  }
}

// ---- random graphs ----

void expect_same_launch(const Graph& graph, const KernelSpec& spec, const Target& target,
                        const Json& dispatch, const Evaluator& evaluator) {
  static std::array<std::byte, 3 * kAlikeBytes> memory;
  const GemmOperands operands = {
      .a = memory.data(), .b = memory.data() + kAlikeBytes, .out = memory.data() + 2 * kAlikeBytes};
  const auto p = problem_of(graph, std::get<GemmSignature>(spec.signature), target);
  const Launch wanted = family_of(spec).bind(spec, *p, target, operands);
  const DescribedLaunch launch = hipdnn::launch_of(
      dispatch, evaluator, {{"$a", operands.a}, {"$b", operands.b}, {"$c", operands.out}});
  ASSERT_EQ(wanted.steps.size(), 1U);
  const Step& step = wanted.steps[0];
  EXPECT_EQ(step.extent, Step::Extent::exact);
  EXPECT_EQ(step.entry, 0);
  EXPECT_EQ(step.shared_memory_bytes, 0U);
  EXPECT_EQ(wanted.workspace.bytes, 0U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(launch.grid[i], step.grid[i]);
    EXPECT_EQ(launch.block[i], step.block[i]);
  }
  ASSERT_EQ(launch.arguments.size(), wanted.arguments.size());
  const auto* const bytes = wanted.arguments.data();
  EXPECT_EQ(launch.arguments, std::vector<std::byte>(bytes, bytes + wanted.arguments.size()));
}

TEST_P(HipdnnFolder, AcceptsAndLaunchesWhatTheLibraryDoesOnRandomGraphs) {
  const std::uint64_t seed = std::random_device{}();
  fmt::print("seed {}\n", seed);
  GraphDraw draw(seed, target_);
  const Descriptors all = descriptors_of(specs_, target_);
  int accepted = 0, declined = 0;
  for (int n = 0; n < 400; ++n) {
    const KernelSpec& own = draw.any_of(specs_);
    Graph graph = draw.for_signature(std::get<GemmSignature>(own.signature));
    if (draw.one_in(2)) draw.spoil(graph);
    SCOPED_TRACE(to_text(graph));
    for (std::size_t other = 0; other < 4; ++other) {
      const auto i = static_cast<std::size_t>(other == 0 ? &own - specs_.data()
                                                         : draw.between(0, std::ssize(specs_) - 1));
      SCOPED_TRACE(name_of(specs_[i]));
      const Environment environment =
          environment_of(graph, all.kdp["kernelDescriptors"][i]["metadata"]);
      const bool wanted = is_wanted(graph, specs_[i], target_);
      for (const Arithmetic arithmetic : {Arithmetic::checked, Arithmetic::doubles}) {
        const Evaluator evaluator(environment, arithmetic);
        ASSERT_EQ(evaluator.accepts(all.umd["criteria"]), wanted);
        if (wanted) expect_same_launch(graph, specs_[i], target_, all.udd, evaluator);
        if (HasFatalFailure()) return;
      }
      ++(wanted ? accepted : declined);
    }
  }
  fmt::print("{}: {} kernels, {} graphs accepted, {} declined\n", target_.name, specs_.size(),
             accepted, declined);
  EXPECT_GE(accepted, 100);
  EXPECT_GE(declined, 100);
}

// ---- the source ----

// The parameters of the text, one a line, against the fields of the argument that bind() fills in.
TEST_P(HipdnnFolder, GivesKernelsOneParameterForEachArgument) {
  const Descriptors all = descriptors_of(specs_, target_);
  const std::map<std::string, std::string> types = {{"i64", "i64"}, {"i32", "int"}};
  std::string wanted = "(\n";
  for (const Json& argument : all.udd["args_signature"]) {
    const std::string type =
        argument["kind"] == "pointer" ? "void*" : types.at(argument["type"].get<std::string>());
    wanted += fmt::format("{}    {} {}", wanted.size() > 2 ? ",\n" : "", type,
                          argument["name"].get<std::string>());
  }
  wanted += ") {\n  Kernel::run(HipGemmArguments{});";
  for (const KernelSpec& spec : specs_) {
    const Source source = family_of(spec).hipdnn_kernel(spec, target_).source;
    EXPECT_NE(source.text.find("void " + name_of(spec) + wanted), std::string::npos) << source.text;
    EXPECT_EQ(source.entries, std::vector<std::string>{""});
  }
}

TEST_P(HipdnnFolder, SharesAllButThePackWithOtherTargets) {
  const Target other = load_target(GetParam() == "gfx942" ? "gfx950" : "gfx942");
  auto mine = describe_for_hipdnn(specs_, target_, file_of);
  auto others = describe_for_hipdnn(expressible_gemms(other), other, file_of);
  EXPECT_EQ(mine.erase("tessera_gemm_" + target_.name + ".kdp.json"), 1U);
  EXPECT_EQ(others.erase("tessera_gemm_" + other.name + ".kdp.json"), 1U);
  EXPECT_EQ(mine, others);
}

// The kernel for every problem is there for what others refuse. RDNA has it for fp32 alone, where
// it has no other.
TEST_P(HipdnnFolder, PrefersKernelsOnTilesToTheGeneralOne) {
  const Json kernels = descriptors_of(specs_, target_).kdp["kernelDescriptors"];
  int pairs = 0;
  for (std::size_t one = 0; one < specs_.size(); ++one) {
    if (specs_[one].algorithm.pipeline != Pipeline::direct) continue;
    for (std::size_t two = 0; two < specs_.size(); ++two) {
      if (specs_[two].algorithm.pipeline != Pipeline::compv4) continue;
      if (specs_[one].signature != specs_[two].signature) continue;
      EXPECT_LT(kernels[one]["priority"], kernels[two]["priority"])
          << kernels[one]["name"] << " and " << kernels[two]["name"];
      ++pairs;
    }
  }
  EXPECT_EQ(pairs > 0, target_.warp_size == 64);
}

// ---- refusals ----

TEST(Hipdnn, RefusesWhatTheFormatCannotExpress) {
  const std::pair<const char*, const char*> refusals[] = {
      {"gemm_bf16_rcr_compv4_128x128x64_2x2x1_16x16x32_intrawave_persistent_gfx942",
       "it has as many workgroups as the device runs at once, which the driver says and no "
       "expression can compute"},
      {"norm_bf16_layernorm_rows_1x4096x1_1x4x1_1x1x1_scale_shift_gfx942",
       "no pattern of a graph is written down for norm"},
      {"fmha_forward_bf16_qr_128x64x128_4x1x1_32x32x16_masked_gfx942",
       "q, k, v and out must lie at multiples of 16 bytes, and no criterion can read the alignment "
       "of a tensor (RFC 0020, 6.1)"},
      {"fmha_forward_fp32_direct_16x32x64_4x1x1_1x1x1_gfx1100",
       "no pattern of a graph is written down for attention on the ordinary lanes"},
      {"fmha_backward_bf16_qr_128x64x64_4x1x1_32x32x16_gfx942",
       "its launch has several steps, and a dispatch descriptor has one (RFC 0017, 15)"},
  };
  for (const auto& [name, reason] : refusals) {
    const KernelSpec spec = parse_name(name);
    EXPECT_EQ(family_of(spec).hipdnn_kernel(spec, load_target(spec.target)).refusal,
              fmt::format("{}: hipDNN cannot be told of it: {}", name, reason));
  }
}

// Each kind of kernel that is refused, among all of a target's.
TEST(Hipdnn, SaysOfEveryRefusedKernelWhy) {
  const std::set<std::string> known = {
      "a graph has no word for a B that was packed ahead for one kernel",
      "its graph is one node, matmul, which has no epilogue, got bias",
      "it counts in the first 65536 bytes of a workspace that must be zero, and a dispatch "
      "descriptor has a workspace of any content",
      "it has as many workgroups as the device runs at once, which the driver says and no "
      "expression can compute"};
  const Target target = load_target("gfx942");
  std::set<std::string> seen;
  for (const char* const variant : {"standard", "preshuffle", "multi_d"}) {
    const std::vector<Wish> wishes = {{"dtype", "bf16"},
                                      {"variant", variant},
                                      {"epilogue", variant[0] == 'm' ? "bias" : "none"},
                                      {"layout", "rcr"}};
    for (const KernelSpec& spec : enumerate(Op::gemm, target, wishes)) {
      const std::string refusal = family_of(spec).hipdnn_kernel(spec, target).refusal;
      if (refusal.empty()) continue;
      const std::string start = name_of(spec) + ": hipDNN cannot be told of it: ";
      ASSERT_TRUE(refusal.starts_with(start)) << refusal;
      seen.insert(refusal.substr(start.size()));
    }
  }
  EXPECT_EQ(seen, known);
}

TEST(Hipdnn, RefusesTargetsThatAreNoGpuOfAmd) {
  const TemporaryFolder folder;
  EXPECT_EQ(message_of([&] { export_for_hipdnn({}, load_target("sm90a"), folder.path / "x", 1); },
                       ErrorCode::invalid_argument),
            "export: hipDNN runs kernels for AMD's GPUs, and sm90a is a target of the backend "
            "cuda");
  EXPECT_FALSE(fs::exists(folder.path / "x"));
}

TEST(Hipdnn, WritesNothingWhenEveryKernelIsRefused) {
  const TemporaryFolder folder;
  KernelSet set{.name = "one", .specs = {}};
  const Target target = load_target("gfx942");
  set.specs = enumerate(Op::conv, target, std::vector<Wish>{{"pipeline", "direct"}});
  ASSERT_FALSE(set.specs.empty());
  set.specs.resize(1);
  EXPECT_EQ(
      message_of([&] { export_for_hipdnn(set, target, folder.path / "x", 1); },
                 ErrorCode::unsupported),
      fmt::format("export: none of 1 kernel can be written; {}: hipDNN cannot be told of it: the "
                  "strides, dilations and padding of a graph's convolution are vectors, which no "
                  "criterion and no argument can read (RFC 0020, B.3)",
                  name_of(set.specs[0])));
  EXPECT_FALSE(fs::exists(folder.path / "x"));
}

}  // namespace
}  // namespace tessera
