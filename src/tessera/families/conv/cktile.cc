// Convolutions as instances of CK Tile's templates, by the names that its dispatcher's documents
// show.
#include "tessera/families/tile/cktile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/cktile_words.h"
#include "tessera/families/tile/sets.h"

namespace tessera::conv {
namespace {

constexpr std::string_view kCkWord = "grouped_conv";  // begins the names

// ---- which kernels ----

using CkCase = Case;
using tile::lists;

bool goes_forward(const CkCase& c) { return c.signature.direction == ConvDirection::forward; }

std::int64_t ck_lds_bytes(const CkCase& c) {
  const Shape3& t = c.algorithm.tile;
  return (std::int64_t{t.m} + t.n) * t.k * size_of(c.signature.in);
}
std::int64_t ck_lds_budget(const CkCase& c) {
  const bool twice = tile::find_cktile_pipeline(c.algorithm.pipeline)->double_buffer;
  return c.target.shared_memory_bytes / (twice ? 2 : 1);
}

// Everything but shapes, pipeline, scheduler and store.
bool ck_rest_at_default(const Algorithm& a) {
  Algorithm plain;
  plain.pipeline = a.pipeline;
  plain.tile = a.tile, plain.wave = a.wave, plain.warp_tile = a.warp_tile;
  plain.scheduler = a.scheduler;
  plain.store = a.store;
  return plain == a;
}

constexpr tile::Rule<CkCase> kCkRules[] = {
    {[](const CkCase& c) {
       return tile::find_cktile_pipeline(c.algorithm.pipeline) != nullptr &&
              lists(tile::cktile_space(Op::conv, c.target).pipelines, c.algorithm.pipeline);
     },
     [](const CkCase& c) {
       return fmt::format("CK Tile has no convolution with pipeline {} for {}",
                          to_string(c.algorithm.pipeline), c.target.name);
     }},
    {[](const CkCase& c) { return c.signature.layout == ConvLayout::nhwgc; },
     [](const CkCase& c) {
       return fmt::format("CK Tile's instances of convolutions have layout nhwgc, got {}",
                          to_string(c.signature.layout));
     }},
    {[](const CkCase& c) {
       const ConvSignature& s = c.signature;
       return s.in == s.weight && s.in == s.out && s.in == s.d && s.acc == DType::fp32;
     },
     [](const CkCase& c) {
       const ConvSignature& s = c.signature;
       return fmt::format(
           "CK Tile's instances of convolutions have one type and acc fp32, got {}, {}, {}, {} and "
           "acc {}",
           to_string(s.in), to_string(s.weight), to_string(s.out), to_string(s.d),
           to_string(s.acc));
     }},
    {[](const CkCase& c) { return num_ops(c.signature.epilogue) == 0; },
     [](const CkCase& c) {
       return fmt::format("CK Tile's instances of convolutions have no epilogue, got {}",
                          to_string(c.signature.epilogue));
     }},
    {[](const CkCase& c) {
       return goes_forward(c) || c.algorithm.pipeline == Pipeline::compv3 ||
              c.algorithm.pipeline == Pipeline::mem;
     },
     [](const CkCase& c) {
       return fmt::format(
           "CK Tile's gradients of convolutions have pipelines compv3 and mem, got {}",
           to_string(c.algorithm.pipeline));
     }},
    {[](const CkCase& c) {
       const Algorithm& a = c.algorithm;
       const bool inter = a.scheduler == Scheduler::interwave && a.pipeline == Pipeline::mem;
       return inter || a.scheduler == Scheduler::intrawave;
     },
     [](const CkCase& c) {
       return fmt::format("the scheduler must be intrawave, or interwave with mem, got {} with {}",
                          to_string(c.algorithm.scheduler), to_string(c.algorithm.pipeline));
     }},
    {[](const CkCase& c) { return c.algorithm.store == Store::cshuffle; },
     [](const CkCase& c) {
       return fmt::format("CK Tile's instances of convolutions store cshuffle, got {}",
                          to_string(c.algorithm.store));
     }},
    {[](const CkCase& c) { return ck_rest_at_default(c.algorithm); },
     [](const CkCase&) {
       return std::string(
           "CK Tile's instances of convolutions have no option but scheduler and store");
     }},
    {[](const CkCase& c) {
       const AlgorithmSpace& space = tile::cktile_space(Op::conv, c.target);
       const auto listed = space.warp_tiles.find(c.signature.in);
       return lists(space.waves, c.algorithm.wave) && listed != space.warp_tiles.end() &&
              lists(listed->second, c.algorithm.warp_tile);
     },
     [](const CkCase& c) {
       return fmt::format("{} does not list waves {} of warp tile {} for {}", c.target.name,
                          to_string(c.algorithm.wave), to_string(c.algorithm.warp_tile),
                          to_string(c.signature.in));
     }},
    tile::kRowOf<CkCase, tile::kCktileDivision>,
    {[](const CkCase& c) { return ck_lds_bytes(c) <= ck_lds_budget(c); },
     [](const CkCase& c) {
       return tile::cktile_lds_sentence(ck_lds_bytes(c), ck_lds_budget(c), c.algorithm.pipeline,
                                        c.target);
     }},
};

Verdict has_instance(const KernelSpec& spec, const Target& target) {
  return tile::has_instance(Op::conv, spec, target, signature_reason, kCkRules);
}

std::vector<Signature> ck_signatures(const Target& target) {
  std::vector<Signature> all;
  for (const auto& [dtype, warp_tiles] : tile::cktile_space(Op::conv, target).warp_tiles) {
    for (const ConvDirection direction :
         {ConvDirection::forward, ConvDirection::backward_data, ConvDirection::backward_weight}) {
      for (const std::int64_t ndim : {1, 2, 3}) {
        all.emplace_back(ConvSignature{.direction = direction,
                                       .ndim = ndim,
                                       .in = dtype,
                                       .weight = dtype,
                                       .out = dtype,
                                       .d = dtype,
                                       .epilogue = {}});
      }
    }
  }
  return all;
}

std::vector<Algorithm> ck_algorithms(const Target& target, const Signature& signature) {
  std::vector<Algorithm> all =
      tile::cktile_algorithms(Op::conv, target, std::get<ConvSignature>(signature).in);
  for (Algorithm& a : all) a.store = Store::cshuffle;
  return all;
}

// forward_fp16_nhwgc_essential: all kernels for images of two dimensions.
std::vector<KernelSpec> ck_preselected(std::string_view set, const Target& target) {
  std::vector<std::string> known;
  for (const Signature& signature : ck_signatures(target)) {
    const auto& s = std::get<ConvSignature>(signature);
    if (s.ndim != 2) continue;
    known.push_back(fmt::format("{}_{}_{}_essential", to_string(s.direction), to_string(s.in),
                                to_string(s.layout)));
    if (known.back() != set) continue;
    std::vector<KernelSpec> specs;
    for (const Algorithm& a : ck_algorithms(target, signature))
      specs.push_back({s, a, target.name});
    std::erase_if(specs, [&](const KernelSpec& spec) { return !has_instance(spec, target); });
    tile::sort_by_name(specs);
    return specs;
  }
  throw Error(ErrorCode::not_found, tile::no_set(Op::conv, set, target, known));
}

int vector_size(const KernelSpec& spec) {
  return 16 / size_of(std::get<ConvSignature>(spec.signature).in);
}

Verdict ck_supports(const KernelSpec& spec, const Problem& problem) {
  const ConvProblem& p = conv_of(problem);
  const int vector = vector_size(spec);
  if (p.c / p.g % vector != 0 || p.k / p.g % vector != 0) {
    return {fmt::format("needs multiples of {} channels a group, got c={} and k={} of g={}", vector,
                        p.c, p.k, p.g)};
  }
  ConvProblem packed = p;
  packed.in_strides = packed.weight_strides = packed.out_strides = kPackedStrides;
  if (with_strides(packed) != with_strides(p)) return {"CK Tile's instances take packed tensors"};
  for (std::size_t i = 0; i < p.pad.size(); ++i) {
    const std::int64_t extent = p.dilation[i] * (p.filter[i] - 1) + 1;
    const std::int64_t right = with_strides(p).pad_right[i];
    if (std::max(p.pad[i], right) < extent && right >= 0) continue;
    return {fmt::format(
        "CK Tile's instances take padding from 0 to below the filter's extent of {}, got {} and {}",
        extent, p.pad[i], right)};
  }
  if (p.alpha == 1 && p.beta == 0) return {};
  return {
      fmt::format("CK Tile's instances have alpha=1 and beta=0, got {} and {}", p.alpha, p.beta)};
}

// ---- names ----

// What differs between the directions. The product's first operand is image x, or y's gradient.
struct CkDirection {
  std::string_view word, suffix, kernel, host_args, variant;
  std::string_view a, b, c;  // whose types they are
  std::string_view loops;    // elements of the reduced dimension, from `arguments`
  std::string_view spatial;  // and what they are multiplied by
  bool short_a = true;       // whether half a vector of the first operand is read at a time
};
constexpr std::array<CkDirection, 3> kCkDirections = {{
    {"fwd", "Fwd", "GroupedConvolutionForwardKernel", "GroupedConvFwdHostArgs<>", "Forward",
     "InDataType", "WeiDataType", "OutDataType", "C_", "filter_spatial_lengths_"},
    {"bwd_data", "BwdData", "GroupedConvolutionBackwardDataKernel", "GroupedConvBwdDataHostArgs",
     "BackwardData", "OutDataType", "WeiDataType", "InDataType", "K_", "filter_spatial_lengths_"},
    // Both operands of this one are transposed on their way, which needs equal vectors.
    {"bwd_weight", "BwdWeight", "GroupedConvolutionBackwardWeightKernel",
     "GroupedConvBwdWeightHostArgs", "BackwardWeight", "OutDataType", "InDataType", "WeiDataType",
     "N_", "output_spatial_lengths_", false},
}};
const CkDirection& ck_direction(const ConvSignature& s) {
  return kCkDirections.at(static_cast<std::size_t>(s.direction));
}

// The layouts of x, w and y.
struct CkLayout {
  std::string_view word, in, weight, out;
};
constexpr std::array<CkLayout, 3> kCkLayouts = {{{"nwgc", "NWGC", "GKXC", "NWGK"},
                                                 {"nhwgc", "NHWGC", "GKYXC", "NHWGK"},
                                                 {"ndhwgc", "NDHWGC", "GKZYXC", "NDHWGK"}}};
const CkLayout& ck_layout(const ConvSignature& s) {
  return kCkLayouts.at(static_cast<std::size_t>(s.ndim - 1));
}

std::array<int, 3> vector_sizes(const KernelSpec& spec) {
  const int whole = vector_size(spec);
  const bool half = ck_direction(std::get<ConvSignature>(spec.signature)).short_a && whole == 8;
  return {half ? whole / 2 : whole, whole, whole};
}

// Names leave out what the documents' defaults are: vectors of 4, 8 and 8 elements.
std::string ck_name(const KernelSpec& spec) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const tile::CktilePipeline& pipeline = *tile::find_cktile_pipeline(a.pipeline);
  std::string name =
      fmt::format("{}_{}_{}_{}_{}d_{}_cshuffle_{}_{}_{}_{}", kCkWord, ck_direction(s).word,
                  to_string(s.in), ck_layout(s).word, s.ndim, pipeline.word, to_string(a.scheduler),
                  to_string(a.tile), to_string(a.wave), to_string(a.warp_tile));
  constexpr std::array kUsual = {4, 8, 8};
  const std::array<int, 3> vectors = vector_sizes(spec);
  if (vectors != kUsual) name += fmt::format("_vec{}_{}_{}", vectors[0], vectors[1], vectors[2]);
  if (pipeline.double_buffer) name += "_dsb";
  return name;
}

// ---- text ----

constexpr std::string_view kCkTypes = R"(
using InDataType = @Type@;
using WeiDataType = @Type@;
using OutDataType = @Type@;
using AccDataType = float;

struct @Name@_Launcher {
  static constexpr ck_tile::index_t NDimSpatial = @NDim@;
  static constexpr ck_tile::index_t VectorSizeA = @VectorA@, VectorSizeB = @VectorB@,
                                    VectorSizeC = @VectorC@;
)";

constexpr std::string_view kCkTraits = R"(  using ADataType = @ADataType@;
  using BDataType = @BDataType@;
  using CDataType = @CDataType@;
  using Conv = ck_tile::GroupedConvTraits<
      NDimSpatial, ck_tile::ConvolutionSpecialization::Default,
      ck_tile::tensor_layout::convolution::@InLayout@,
      ck_tile::tensor_layout::convolution::@WeightLayout@, ck_tile::tuple<>,
      ck_tile::tensor_layout::convolution::@OutLayout@, VectorSizeA, VectorSizeB, VectorSizeC>;
  using Fixed = typename Conv::FixedGemmParams;
  using Partitioner =
      ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, Fixed::TilePartitionerGroupNum,
                                                 Fixed::TilePartitionerM01>;
  using Traits = ck_tile::TileGemmUniversalTraits<
      Fixed::kPadM, Fixed::kPadN, Fixed::kPadK, DoubleSmemBuffer, typename Conv::AsLayout@Suffix@,
      typename Conv::BsLayout@Suffix@, typename Conv::CLayout@Suffix@, Fixed::TransposeC,
      Fixed::UseStructuredSparsity, Fixed::Persistent, NumWaveGroups>;
)";

constexpr std::string_view kCkProblemFields =
    R"(    static constexpr bool FixedVectorSize = Fixed::FixedVectorSize;
    static constexpr ck_tile::index_t VectorSizeA = Conv::VectorSizeA,
                                      VectorSizeB = Conv::VectorSizeB;
)";

constexpr std::string_view kCkLaunch =
    R"(  using Epilogue = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
      ADataType, BDataType, ck_tile::tuple<>, AccDataType, CDataType,
      typename Conv::ImplicitGemmDsLayout, typename Fixed::ELayout,
      ck_tile::element_wise::PassThrough, TileM, TileN, WarpPerBlock_M, WarpPerBlock_N, WarpTileM,
      WarpTileN, WarpTileK, Fixed::TransposeC, ck_tile::memory_operation_enum::set, NumWaveGroups,
      Fixed::FixedVectorSize, VectorSizeC>>;
  template <bool kHotLoop, ck_tile::TailNumber kTail>
  using Kernel =
      ck_tile::@Kernel@<Conv, Partitioner, Pipeline<Problem<kHotLoop, kTail>>, Epilogue>;
  using HostArguments = ck_tile::@HostArgs@;

  // Launches the kernel and returns milliseconds, 0 where the stream does not time it.
  template <class Arguments>
  static float launch(const Arguments& arguments, const ck_tile::stream_config& stream) {
    if (arguments.k_batch != 1) {
      throw std::runtime_error(std::string(KERNEL_NAME) + ": k_batch must be 1, got " +
                               std::to_string(arguments.k_batch));
    }
    ck_tile::index_t depth = arguments.@Loops@;
    for (const auto length : arguments.@Spatial@) {
      depth *= static_cast<ck_tile::index_t>(length);
    }
    const ck_tile::index_t loops = Partitioner::GetLoopNum(depth);
    float milliseconds = 0;
    const auto run = [&](const auto hot_loop, const auto tail) {
      using K = Kernel<hot_loop.value, tail.value>;
      const auto kernel_arguments = K::MakeKernelArgs(arguments);
      if (!K::IsSupportedArgument(kernel_arguments)) {
        throw std::runtime_error(std::string(KERNEL_NAME) + " does not take these arguments");
      }
      milliseconds = ck_tile::launch_kernel(
          stream, ck_tile::make_kernel<1>(K{}, K::GridSize(kernel_arguments), K::BlockSize(), 0,
                                          kernel_arguments));
    };
    BasePipeline::TailHandler(run, BasePipeline::BlockHasHotloop(loops),
                              BasePipeline::GetBlockLoopTailNum(loops));
    return milliseconds;
  }
};
)";

Instance ck_emit(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const CkDirection& direction = ck_direction(s);
  const CkLayout& layout = ck_layout(s);
  const std::array<int, 3> vectors = vector_sizes(spec);
  std::string name = ck_name(spec);
  tile::Places places = tile::cktile_shapes(spec.algorithm, target.warp_size);
  const tile::Places more = {{"Name", name},
                             {"Type", std::string(tile::cktile_type(s.in))},
                             {"NDim", std::to_string(s.ndim)},
                             {"VectorA", std::to_string(vectors[0])},
                             {"VectorB", std::to_string(vectors[1])},
                             {"VectorC", std::to_string(vectors[2])},
                             {"ADataType", std::string(direction.a)},
                             {"BDataType", std::string(direction.b)},
                             {"CDataType", std::string(direction.c)},
                             {"InLayout", std::string(layout.in)},
                             {"WeightLayout", std::string(layout.weight)},
                             {"OutLayout", std::string(layout.out)},
                             {"Suffix", std::string(direction.suffix)},
                             {"ProblemFields", std::string(kCkProblemFields)},
                             {"Kernel", std::string(direction.kernel)},
                             {"HostArgs", std::string(direction.host_args)},
                             {"Loops", std::string(direction.loops)},
                             {"Spatial", std::string(direction.spatial)}};
  places.insert(places.end(), more.begin(), more.end());
  const std::string body = tile::fill_in(
      {kCkTypes, tile::kCktileShapes, kCkTraits, tile::kCktileProblem, kCkLaunch}, places);
  return tile::cktile_instance(
      std::move(name), spec,
      {"core.hpp", "host.hpp", "ops/epilogue.hpp", "ops/gemm.hpp", "ops/grouped_convolution.hpp"},
      body, true);
}

// ---- registration ----

constexpr std::string_view kCkEntry = R"(  {
    GroupedConvKernelKey key;
    key.dtype_in = key.dtype_wei = key.dtype_out = "@DType@";
    key.layout = "@Layout@";
    key.ndim_spatial = @NDim@;
    key.op = GroupedConvOp::@Op@;
    key.tile_m = @TileM@, key.tile_n = @TileN@, key.tile_k = @TileK@;
    key.wave_m = @WaveM@, key.wave_n = @WaveN@, key.wave_k = @WaveK@;
    key.warp_m = @WarpTileM@, key.warp_n = @WarpTileN@, key.warp_k = @WarpTileK@;
    key.pipeline = "@PipelineWord@";
    key.scheduler = "@SchedulerWord@";
    key.epilogue = "cshuffle";
    key.vector_size_a = @VectorA@, key.vector_size_b = @VectorB@, key.vector_size_c = @VectorC@;
    key.num_wave_groups = @WaveGroups@;
    key.arch = gfx_arch;
    using Launcher = ::ns_@Name@::@Name@_Launcher;
    registry.register_kernel(
        key,
        std::make_shared<GroupedConvKernelInstance>(
            key, ::ns_@Name@::KERNEL_NAME, backends::make_conv_@Word@_run_fn<Launcher, @NDim@>(),
            backends::make_conv_@Word@_is_supported_fn<Launcher, @NDim@>()),
        priority);
  }
)";

std::string ck_entry(const Instance& instance, const Target& target) {
  const auto& s = std::get<ConvSignature>(instance.spec.signature);
  const Algorithm& a = instance.spec.algorithm;
  const std::array<int, 3> vectors = vector_sizes(instance.spec);
  tile::Places places = tile::cktile_shapes(a, target.warp_size);
  const tile::Places more = {
      {"Name", instance.name},
      {"DType", std::string(to_string(s.in))},
      {"Layout", std::string(ck_layout(s).word)},
      {"NDim", std::to_string(s.ndim)},
      {"Op", std::string(ck_direction(s).variant)},
      {"Word", std::string(ck_direction(s).word)},
      {"PipelineWord", std::string(tile::find_cktile_pipeline(a.pipeline)->word)},
      {"SchedulerWord", std::string(to_string(a.scheduler))},
      {"VectorA", std::to_string(vectors[0])},
      {"VectorB", std::to_string(vectors[1])},
      {"VectorC", std::to_string(vectors[2])}};
  places.insert(places.end(), more.begin(), more.end());
  return tile::fill_in({kCkEntry}, places);
}

// The functions of one direction, whether it has kernels or not.
std::string ck_functions(std::span<const Instance> instances, const Target& target,
                         const CkDirection& direction) {
  std::string entries;
  std::size_t count = 0;
  for (const Instance& instance : instances) {
    const auto& s = std::get<ConvSignature>(instance.spec.signature);
    if (&ck_direction(s) != &direction) continue;
    entries += ck_entry(instance, target);
    ++count;
  }
  const std::string head = fmt::format(
      "inline void register_all_grouped_conv_{}_kernels(\n"
      "    [[maybe_unused]] const std::string& gfx_arch = \"{}\",\n"
      "    [[maybe_unused]] GroupedConvRegistry::Priority priority =\n"
      "        GroupedConvRegistry::Priority::Normal) {{\n",
      direction.word, target.name);
  const std::string registry =
      count == 0 ? "" : "  GroupedConvRegistry& registry = GroupedConvRegistry::instance();\n";
  return fmt::format(
      "{}{}{}}}\n"
      "inline std::size_t get_grouped_conv_{}_kernel_count() {{ return {}; }}\n"
      "\n",
      head, registry, entries, direction.word, count);
}

std::vector<InstanceFile> ck_registration(std::span<const Instance> instances,
                                          const Target& target) {
  std::string functions;
  for (const CkDirection& direction : kCkDirections) {
    functions += ck_functions(instances, target, direction);
  }
  return {{"dispatcher_wrappers/register_all_grouped_conv_kernels.hpp",
           fmt::format("// Generated by tessera for CK Tile's dispatcher (docs/amd.md). Do not "
                       "edit.\n"
                       "#pragma once\n"
                       "\n"
                       "#include <cstddef>\n"
                       "#include <memory>\n"
                       "#include <string>\n"
                       "\n"
                       "#include \"ck_tile/dispatcher.hpp\"\n"
                       "#include \"ck_tile/dispatcher/backends/generated_conv_backend.hpp\"\n"
                       "{}"
                       "\n"
                       "namespace ck_tile::dispatcher {{\n"
                       "\n"
                       "{}"
                       "}}  // namespace ck_tile::dispatcher\n",
                       tile::cktile_includes(instances), functions)}};
}

// ---- rows of the dispatcher's data ----

// The directions by all words that files have for them, the longer ones first.
constexpr std::array kCkDirectionWords = {
    tile::CktileWord{"backward_data", "direction", "backward_data"},
    tile::CktileWord{"backward_weight", "direction", "backward_weight"},
    tile::CktileWord{"bwd_data", "direction", "backward_data"},
    tile::CktileWord{"bwd_weight", "direction", "backward_weight"},
    tile::CktileWord{"forward", "direction", "forward"},
    tile::CktileWord{"fwd", "direction", "forward"}};
// Tessera has one word for channels last, whatever the dimensions.
constexpr tile::CktileWord kCkNameWords[] = {kCkDirectionWords[0],
                                             kCkDirectionWords[1],
                                             kCkDirectionWords[2],
                                             kCkDirectionWords[3],
                                             kCkDirectionWords[4],
                                             kCkDirectionWords[5],
                                             {"nwgc", "layout", "nhwgc"},
                                             {"nhwgc", "layout", "nhwgc"},
                                             {"ndhwgc", "layout", "nhwgc"},
                                             {"1d", "ndim", "1"},
                                             {"2d", "ndim", "2"},
                                             {"3d", "ndim", "3"},
                                             {"dsb", "double_buffer", "true"}};

// Files call the direction a variant.
void name_direction(ProblemWords& row) {
  for (const char* key : {"variant", "direction"}) {
    const auto given = row.find(key);
    if (given == row.end()) continue;
    for (const tile::CktileWord& known : kCkDirectionWords) {
      if (given->second == known.word) row["direction"] = known.value;
    }
  }
  row.erase("variant");
}

void check_double_buffer(ProblemWords& row, const Algorithm& a) {
  const bool is_named = row.erase("double_buffer") > 0;
  if (!is_named || tile::find_cktile_pipeline(a.pipeline)->double_buffer) return;
  throw Error(ErrorCode::parse_error,
              fmt::format("has a kernel with two buffers (dsb), which compv4 alone has, got {}",
                          to_string(a.pipeline)));
}

// Names that do not say how a kernel stores and schedules mean cshuffle and intrawave.
InstanceRow ck_from_row(ProblemWords& row) {
  name_direction(row);
  tile::read_cktile_name(row, kCkWord, kCkNameWords);
  row.emplace("epilogue", "cshuffle");
  row.emplace("scheduler", "intrawave");
  const InstanceRow kernel = tile::take_cktile_kernel(row);
  check_double_buffer(row, kernel.algorithm);
  return kernel;
}

constexpr InstanceSource kCkSources[] = {{.name = tile::kCktile,
                                          .signatures = ck_signatures,
                                          .algorithms = ck_algorithms,
                                          .preselected = ck_preselected,
                                          .is_legal = has_instance,
                                          .supports = ck_supports,
                                          .emit = ck_emit,
                                          .registration = ck_registration,
                                          .word = kCkWord,
                                          .from_row = ck_from_row}};

}  // namespace

std::span<const InstanceSource> instances() { return kCkSources; }

}  // namespace tessera::conv
