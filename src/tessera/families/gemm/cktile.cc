// GEMM's kernels as instances of CK Tile's templates, by the names that its dispatcher's documents
// show.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/cktile.h"
#include "tessera/families/tile/cktile_words.h"
#include "tessera/families/tile/sets.h"

namespace tessera::gemm {
namespace {

using tile::cktile_bool;
using tile::cktile_type;
using tile::cktile_word;

constexpr std::string_view kWord = "gemm";  // begins the names

const GemmSignature& signature_in(const KernelSpec& spec) {
  return std::get<GemmSignature>(spec.signature);
}

// ---- which kernels ----

// How a chain of steps is called that CK Tile computes while it stores; null for any other chain.
struct NamedChain {
  EpilogueOp first;
  std::string_view word;
};
constexpr NamedChain kChains[] = {{EpilogueOp::add, "MultiDAdd"},
                                  {EpilogueOp::multiply, "MultiDMultiply"},
                                  {EpilogueOp::multi_d_add, "MultiDAdd"},
                                  {EpilogueOp::multi_d_multiply, "MultiDMultiply"}};

const NamedChain* find_chain(const Epilogue& chain) {
  if (num_ops(chain) != 1) return nullptr;
  for (const NamedChain& row : kChains) {
    if (row.first == chain.ops[0]) return &row;
  }
  return nullptr;
}

// multi_d_add of one tensor is add, which has a name of its own.
bool is_other_name(const Epilogue& chain) {
  const EpilogueOp op = chain.ops[0];
  const bool is_multi = op == EpilogueOp::multi_d_add || op == EpilogueOp::multi_d_multiply;
  return is_multi && chain.num_d < 2;
}

std::string types_reason(const GemmSignature& s) {
  if (s.a == DType::tf32) return "CK Tile's instances have no tf32";
  const bool usual = s.acc == default_accumulator(s.a) && s.out == default_output(s.a);
  if (s.a == s.b && usual && s.d == s.out) return {};
  return fmt::format(
      "names of CK Tile's instances have one type: b must be {0}, acc {1}, out and d {2}, got {3}, "
      "{4}, {5} and {6}",
      to_string(s.a), to_string(default_accumulator(s.a)), to_string(default_output(s.a)),
      to_string(s.b), to_string(s.acc), to_string(s.out), to_string(s.d));
}

std::string epilogue_reason(const KernelSpec& spec) {
  const GemmSignature& s = signature_in(spec);
  if (num_ops(s.epilogue) == 0) return {};
  if (find_chain(s.epilogue) == nullptr || is_other_name(s.epilogue)) {
    return fmt::format(
        "CK Tile's instances have the epilogues none, add, multiply, multi_d_add and "
        "multi_d_multiply of 2 to {} tensors, got {}",
        kMaxD, to_string(s.epilogue));
  }
  if (s.preshuffled_b) return "CK Tile's instances with preshuffle have no epilogue";
  if (spec.algorithm.splits != 1) {
    return fmt::format("CK Tile's instances with an epilogue have splits=1, got {}",
                       spec.algorithm.splits);
  }
  if (spec.algorithm.store == Store::cshuffle) return {};
  return fmt::format("CK Tile's instances with an epilogue store cshuffle, got {}",
                     to_string(spec.algorithm.store));
}

std::string preshuffle_reason(const KernelSpec& spec) {
  const GemmSignature& s = signature_in(spec);
  if (!s.preshuffled_b) return {};
  const Algorithm& a = spec.algorithm;
  if (s.layout != GemmLayout::rcr) {
    return fmt::format("CK Tile's instances with preshuffle have layout rcr, got {}",
                       to_string(s.layout));
  }
  if (a.pipeline == Pipeline::compv4 && a.store == Store::cshuffle) return {};
  return fmt::format(
      "CK Tile's instances with preshuffle are written as pipeline compv4 that stores cshuffle, "
      "got {} and {}",
      to_string(a.pipeline), to_string(a.store));
}

Verdict has_instance(const KernelSpec& spec, const Target& target) {
  if (Verdict verdict = is_legal_for_cktile(spec, target); !verdict) return verdict;
  for (const std::string& reason :
       {types_reason(signature_in(spec)), epilogue_reason(spec), preshuffle_reason(spec)}) {
    if (!reason.empty()) return {reason};
  }
  return {};
}

std::vector<Signature> signatures(const Target& target) {
  std::vector<Signature> all;
  for (const auto& [dtype, warp_tiles] : tile::cktile_space(Op::gemm, target).warp_tiles) {
    for (const GemmLayout layout :
         {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
      GemmSignature s = std::get<GemmSignature>(signature_of(gemm_problem(dtype, layout, 0, 0, 0)));
      all.emplace_back(s);
      for (const std::string_view chain :
           {"add", "multiply", "multi_d_add2", "multi_d_multiply2"}) {
        s.epilogue = parse_epilogue(chain);
        all.emplace_back(s);
      }
      s.epilogue = {};
      s.preshuffled_b = true;
      all.emplace_back(s);
    }
  }
  return all;
}

// Each algorithm with both ways to store.
std::vector<Algorithm> algorithms(const Target& target, const Signature& signature) {
  std::vector<Algorithm> all;
  for (Algorithm a :
       tile::cktile_algorithms(Op::gemm, target, std::get<GemmSignature>(signature).a)) {
    for (const Store store : {Store::standard, Store::cshuffle}) {
      a.store = store;
      all.push_back(a);
    }
  }
  return all;
}

std::vector<KernelSpec> preselected_instances(std::string_view set, const Target& target) {
  return tile::preselected(Op::gemm, set, target, has_instance);
}

Verdict serves(const KernelSpec&, const Problem& problem) {
  const auto& p = std::get<GemmProblem>(problem);
  if (p.batch > 1 || p.pointer_arrays) {
    return {fmt::format("CK Tile's instances multiply one batch, got batch={}", p.batch)};
  }
  if (p.alpha != 1 || p.beta != 0) {
    return {
        fmt::format("CK Tile's instances have alpha=1 and beta=0, got {} and {}", p.alpha, p.beta)};
  }
  return {};
}

// ---- names ----

std::string instance_name(const KernelSpec& spec) {
  const GemmSignature& s = signature_in(spec);
  const Algorithm& a = spec.algorithm;
  std::string name = fmt::format(
      "{}_{}_{}_{}_{}_{}_True_True_True_{}_{}_{}_{}", kWord, to_string(s.a), to_string(s.layout),
      tile::find_cktile_pipeline(a.pipeline)->word,
      a.store == Store::cshuffle ? "cshuffle" : "default", to_string(a.scheduler),
      cktile_word(a.persistent), to_string(a.tile), to_string(a.wave), to_string(a.warp_tile));
  if (a.splits > 1) name += fmt::format("_splitk{}", a.splits);
  if (s.preshuffled_b) name += "_preshuffle";
  if (const NamedChain* chain = find_chain(s.epilogue)) {
    name += fmt::format("_multid_{}_d{}", chain->word, s.epilogue.num_d);
  }
  return name;
}

// ---- text ----

std::string_view layout_name(bool row_major) {
  return row_major ? "ck_tile::tensor_layout::gemm::RowMajor"
                   : "ck_tile::tensor_layout::gemm::ColumnMajor";
}

// The types of the D tensors, and their layouts.
std::string tuple_of(std::size_t count, std::string_view type) {
  std::string types;
  for (std::size_t i = 0; i < count; ++i) types += fmt::format("{}{}", i == 0 ? "" : ", ", type);
  return fmt::format("ck_tile::tuple<{}>", types);
}

constexpr std::string_view kTypes = R"(
using ADataType = @A@;
using BDataType = @B@;
using AccDataType = @Acc@;
using CDataType = @C@;
using ALayout = @ALayout@;
using BLayout = @BLayout@;
using CLayout = ck_tile::tensor_layout::gemm::RowMajor;
using DsDataType = @Ds@;
using DsLayout = @DsLayouts@;

struct SelectedKernel {
)";

constexpr std::string_view kTraits =
    R"(  static constexpr bool kPadM = true, kPadN = true, kPadK = true, TransposeC = false;
  static constexpr bool UsePersistentKernel = @Persistent@, Preshuffle = @Preshuffle@;
  static constexpr ck_tile::index_t SplitK = @SplitK@;
  using Partitioner = ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, 8, 4>;
  using Traits = ck_tile::TileGemmUniversalTraits<kPadM, kPadN, kPadK, DoubleSmemBuffer, ALayout,
                                                  BLayout, CLayout, TransposeC, false,
                                                  UsePersistentKernel, NumWaveGroups, Preshuffle>;
)";

constexpr std::string_view kShuffled =
    R"(  using Epilogue = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
      ADataType, BDataType, DsDataType, AccDataType, CDataType, DsLayout, CLayout,
      ck_tile::element_wise::@Op@, TileM, TileN, WarpPerBlock_M, WarpPerBlock_N, WarpTileM,
      WarpTileN, WarpTileK, TransposeC, ck_tile::memory_operation_enum::@Store@, NumWaveGroups>>;
)";

constexpr std::string_view kDefault =
    R"(  using Epilogue = ck_tile::DefaultGemm2DEpilogue<ck_tile::DefaultGemm2DEpilogueProblem<
      ADataType, BDataType, DsDataType, AccDataType, CDataType, DsLayout, CLayout,
      ck_tile::element_wise::@Op@, TileM, TileN, kPadM, kPadN, WarpTileM, WarpTileN, WarpTileK,
      TransposeC, true, ck_tile::memory_operation_enum::@Store@>>;
)";

constexpr std::string_view kLaunch =
    R"(  template <bool kHotLoop, ck_tile::TailNumber kTail>
  using Kernel = ck_tile::@Kernel@<Partitioner, Pipeline<Problem<kHotLoop, kTail>>, Epilogue>;

  // Launches the kernel and returns milliseconds, 0 where the stream does not time it.
  template <class Arguments>
  static float launch(const Arguments& arguments, const ck_tile::stream_config& stream) {
    if (arguments.k_batch != SplitK) {
      throw std::runtime_error(std::string(KERNEL_NAME) + ": k_batch must be @SplitK@, got " +
                               std::to_string(arguments.k_batch));
    }
    constexpr ck_tile::index_t kGrain = SplitK * TileK;
    const ck_tile::index_t loops =
        Partitioner::GetLoopNum((arguments.K + kGrain - 1) / kGrain * TileK);
    float milliseconds = 0;
    const auto run = [&](const auto hot_loop, const auto tail) {
      using K = Kernel<hot_loop.value, tail.value>;
      const auto kernel_arguments = K::MakeKernelArgs(arguments);
      if (!K::IsSupportedArgument(kernel_arguments)) {
        throw std::runtime_error(std::string(KERNEL_NAME) + " does not take these arguments");
      }
      dim3 grid = K::GridSize(arguments.M, arguments.N, arguments.k_batch);
      if constexpr (UsePersistentKernel) grid = K::MaxOccupancyGridSize(stream);
      // Parts of K are added to what is there.
      const auto clear = [&] {
        if constexpr (SplitK > 1) {
          ck_tile::hip_check_error(
              hipMemset2DAsync(arguments.e_ptr, arguments.stride_E * sizeof(CDataType), 0,
                               arguments.N * sizeof(CDataType), arguments.M, stream.stream_id_));
        }
      };
      milliseconds = ck_tile::launch_kernel_time_mask(
          stream, clear,
          ck_tile::make_kernel<1>(K{}, grid, K::BlockSize(), 0, kernel_arguments));
    };
    BasePipeline::TailHandler(run, BasePipeline::BlockHasHotloop(loops),
                              BasePipeline::GetBlockLoopTailNum(loops));
    return milliseconds;
  }
};
)";

Instance emit_instance_text(const KernelSpec& spec, const Target& target) {
  const GemmSignature& s = signature_in(spec);
  const Algorithm& a = spec.algorithm;
  const NamedChain* const chain = find_chain(s.epilogue);
  const std::size_t num_d = s.epilogue.num_d;
  std::string name = instance_name(spec);
  tile::Places places = tile::cktile_shapes(a, target.warp_size);
  if (s.preshuffled_b) {  // the two buffers of this pipeline are inside of it
    std::erase_if(places, [](const auto& p) { return p.first.ends_with("Pipeline"); });
    places.emplace_back("Pipeline", "WeightPreshufflePipelineAGmemBGmemCRegV2");
    places.emplace_back("BasePipeline", "BaseWeightPreshufflePipelineAGmemBGmemCRegV2");
  }
  const tile::Places more = {{"Name", name},
                             {"A", std::string(cktile_type(s.a))},
                             {"B", std::string(cktile_type(s.b))},
                             {"Acc", std::string(cktile_type(s.acc))},
                             {"C", std::string(cktile_type(s.out))},
                             {"ALayout", std::string(layout_name(a_is_row_major(s.layout)))},
                             {"BLayout", std::string(layout_name(b_is_row_major(s.layout)))},
                             {"Ds", tuple_of(num_d, cktile_type(s.d))},
                             {"DsLayouts", tuple_of(num_d, "CLayout")},
                             {"Persistent", std::string(cktile_bool(a.persistent))},
                             {"Preshuffle", std::string(cktile_bool(s.preshuffled_b))},
                             {"SplitK", std::to_string(a.splits)},
                             {"ProblemFields", ""},
                             {"Op", std::string(chain == nullptr ? "PassThrough" : chain->word)},
                             {"Store", a.splits > 1 ? "atomic_add" : "set"},
                             {"Kernel", num_d > 0 ? "GemmKernelMultiD" : "GemmKernel"}};
  places.insert(places.end(), more.begin(), more.end());
  const std::string body =
      tile::fill_in({kTypes, tile::kCktileShapes, kTraits, tile::kCktileProblem,
                     a.store == Store::cshuffle ? kShuffled : kDefault, kLaunch},
                    places);
  return tile::cktile_instance(std::move(name), spec,
                               {"core.hpp", "host.hpp", "ops/epilogue.hpp", "ops/gemm.hpp"}, body,
                               true);
}

// ---- registration ----

std::string_view dispatcher_type(DType dtype) {
  constexpr std::string_view kNames[] = {"FP32", "", "FP16", "BF16", "FP8", "BF8", "INT8", "INT32"};
  return kNames[static_cast<std::size_t>(dtype)];
}

constexpr std::string_view kEntry = R"(  {
    KernelKey key;
    key.signature.dtype_a = key.signature.dtype_b = DataType::@A@;
    key.signature.dtype_c = DataType::@C@;
    key.signature.dtype_acc = DataType::@Acc@;
    key.signature.layout_a = LayoutTag::@ALayout@;
    key.signature.layout_b = LayoutTag::@BLayout@;
    key.signature.layout_c = LayoutTag::RowMajor;
    key.signature.split_k = @SplitK@;
    key.signature.elementwise_op = "@Op@";
    key.signature.num_d_tensors = @NumD@;
    key.algorithm.tile_shape = {@Tile@};
    key.algorithm.wave_shape = {@Wave@};
    key.algorithm.warp_tile_shape = {@WarpTile@};
    key.algorithm.pipeline = Pipeline::@Pipeline@;
    key.algorithm.scheduler = Scheduler::@Scheduler@;
    key.algorithm.epilogue = Epilogue::@Epilogue@;
    key.algorithm.block_size = @BlockSize@;
    key.algorithm.double_buffer = @DoubleBuffer@;
    key.algorithm.persistent = @Persistent@;
    key.algorithm.preshuffle = @Preshuffle@;
    key.algorithm.num_wave_groups = @WaveGroups@;
    key.gfx_arch = gfx_arch;
    namespace kernel = ::ns_@Name@;
    registry.register_kernel(
        backends::create_generated_tile_kernel<kernel::SelectedKernel, kernel::ADataType,
                                               kernel::BDataType, kernel::CDataType,
                                               kernel::AccDataType>(key, kernel::KERNEL_NAME),
        priority);
  }
)";

std::string entry_of(const Instance& instance, const Target& target) {
  const GemmSignature& s = signature_in(instance.spec);
  const Algorithm& a = instance.spec.algorithm;
  const NamedChain* const chain = find_chain(s.epilogue);
  const tile::CktilePipeline& pipeline = *tile::find_cktile_pipeline(a.pipeline);
  const auto layout = [](bool row_major) { return row_major ? "RowMajor" : "ColMajor"; };
  tile::Places places = {
      {"Name", instance.name},
      {"A", std::string(dispatcher_type(s.a))},
      {"C", std::string(dispatcher_type(s.out))},
      {"Acc", std::string(dispatcher_type(s.acc))},
      {"ALayout", layout(a_is_row_major(s.layout))},
      {"BLayout", layout(b_is_row_major(s.layout))},
      {"SplitK", std::to_string(a.splits)},
      {"Op", std::string(chain == nullptr ? "PassThrough" : chain->word)},
      {"NumD", std::to_string(s.epilogue.num_d)},
      {"Tile", tile::cktile_numbers(a.tile)},
      {"Wave", tile::cktile_numbers(a.wave)},
      {"WarpTile", tile::cktile_numbers(a.warp_tile)},
      {"Pipeline", std::string(s.preshuffled_b ? "PreShuffleV2" : pipeline.dispatcher)},
      {"Epilogue", a.store == Store::cshuffle ? "CShuffle" : "Default"},
      {"Persistent", std::string(cktile_bool(a.persistent))},
      {"Preshuffle", std::string(cktile_bool(s.preshuffled_b))}};
  const tile::Places shapes = tile::cktile_shapes(a, target.warp_size);
  places.insert(places.end(), shapes.begin(), shapes.end());
  return tile::fill_in({kEntry}, places);
}

std::vector<InstanceFile> registration(std::span<const Instance> instances, const Target& target) {
  std::string entries;
  for (const Instance& instance : instances) entries += entry_of(instance, target);
  return {{"dispatcher_wrappers/register_all_kernels.hpp",
           fmt::format("// Generated by tessera for CK Tile's dispatcher (docs/amd.md). Do not "
                       "edit.\n"
                       "#pragma once\n"
                       "\n"
                       "#include <cstddef>\n"
                       "#include <string>\n"
                       "\n"
                       "#include \"ck_tile/dispatcher.hpp\"\n"
                       "#include \"ck_tile/dispatcher/backends/generated_tile_backend.hpp\"\n"
                       "{}"
                       "\n"
                       "namespace ck_tile::dispatcher {{\n"
                       "\n"
                       "inline void register_all_tile_gemm_kernels(\n"
                       "    const std::string& gfx_arch = \"{}\",\n"
                       "    Registry::Priority priority = Registry::Priority::Normal) {{\n"
                       "  Registry& registry = Registry::instance();\n"
                       "{}"
                       "}}\n"
                       "\n"
                       "inline std::size_t get_tile_gemm_kernel_count() {{ return {}; }}\n"
                       "\n"
                       "}}  // namespace ck_tile::dispatcher\n",
                       tile::cktile_includes(instances), target.name, entries, instances.size())}};
}

// ---- rows of the dispatcher's data ----

constexpr tile::CktileWord kNameWords[] = {
    {"universal", "", ""},    {"rcr", "layout", "rcr"}, {"rrr", "layout", "rrr"},
    {"crr", "layout", "crr"}, {"ccr", "layout", "ccr"}, {"preshuffle", "preshuffle", "true"}};

InstanceRow from_row(ProblemWords& row) {
  tile::read_cktile_name(row, kWord, kNameWords);
  return tile::take_cktile_kernel(row);
}

constexpr InstanceSource kSources[] = {{.name = tile::kCktile,
                                        .signatures = signatures,
                                        .algorithms = algorithms,
                                        .preselected = preselected_instances,
                                        .is_legal = has_instance,
                                        .supports = serves,
                                        .emit = emit_instance_text,
                                        .registration = registration,
                                        .word = kWord,
                                        .from_row = from_row}};

}  // namespace

std::span<const InstanceSource> instances() { return kSources; }

}  // namespace tessera::gemm
