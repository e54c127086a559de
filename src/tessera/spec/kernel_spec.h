// KernelSpec: how a problem is solved. Signature (what it can compute), Algorithm (how), target.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/spec/problem.h"

#pragma GCC visibility push(default)
namespace tessera {

struct Shape3 {
  int m = 1;
  int n = 1;
  int k = 1;
  friend auto operator<=>(const Shape3&, const Shape3&) = default;
};
std::string to_string(const Shape3& shape);  // "128x256x64"

// How operands reach the multiplication. CPU: packab (A and B copied into panels), packb (B only),
// packa (A only), direct (read in place), stream (bandwidth-bound: one side has 16 rows or fewer),
// small (short calls: operands are read where they lie, with as little as possible around them),
// amx (A and B copied into panels for the tiles of Intel AMX).
// Hopper: tmaws, cpasync. AMD CDNA: compv3 (one buffer in LDS, the next tile waits in registers),
// compv4 (two buffers), mem (two tiles wait in registers), async (tiles go to LDS directly), direct
// (any problem); CK Tile only: compv5, and of attention qr and qrasync (the queries stay in
// registers; asynchronously the keys go to LDS directly). Normalisations and routers: rows. direct
// runs any convolution or attention on any machine, depthwise convolutions with one channel of x in
// each group, grouped those with few channels in each (Hopper). Attention: flash (the keys go by in
// blocks, the sums stay), splitkv (few queries: the keys are cut into parts, whose sums are
// merged).
enum class Pipeline : std::uint8_t {
  packab,
  packb,
  packa,
  direct,
  stream,
  tmaws,
  cpasync,
  compv3,
  compv4,
  compv5,
  mem,
  rows,
  depthwise,
  flash,
  splitkv,
  async,
  qr,
  qrasync,
  small,
  amx,
  grouped,
};
std::string_view to_string(Pipeline pipeline);
Pipeline parse_pipeline(std::string_view text);

enum class Scheduler : std::uint8_t { standard, cooperative, pingpong, intrawave, interwave };
std::string_view to_string(Scheduler scheduler);

enum class Store : std::uint8_t { standard, direct, tma, cshuffle };
std::string_view to_string(Store store);

enum class SplitK : std::uint8_t { none, ordered, atomic };
std::string_view to_string(SplitK split);

struct GemmSignature {
  DType a = DType::fp32;
  DType b = DType::fp32;
  DType acc = DType::fp32;
  DType out = DType::fp32;
  DType d = DType::fp32;
  GemmLayout layout = GemmLayout::rcr;
  Epilogue epilogue;
  bool preshuffled_b = false;
  GemmGrouping grouping = GemmGrouping::none;
  GemmScale scale_a = GemmScale::none;
  GemmScale scale_b = GemmScale::none;
  GemmScaleType scale_type = GemmScaleType::fp32;
  GemmGate gate = GemmGate::none;
  bool gate_interleaved = false;
  GemmIndexing indexing = GemmIndexing::none;
  NormQuant quant = NormQuant::none;
  bool arranged = false;  // whether the kernel arranges operands, see is_arranged()
  friend bool operator==(const GemmSignature&, const GemmSignature&) = default;
};

struct NormSignature {
  NormKind kind = NormKind::softmax;
  DType in = DType::fp32;
  DType weight = DType::fp32;
  DType out = DType::fp32;
  bool scale = false;
  bool shift = false;
  bool residual = false;
  NormQuant quant = NormQuant::none;
  bool interleaved = false;
  friend bool operator==(const NormSignature&, const NormSignature&) = default;
};

struct ConvSignature {
  ConvDirection direction = ConvDirection::forward;
  ConvLayout layout = ConvLayout::nhwgc;
  std::int64_t ndim = 2;
  DType in = DType::fp32;
  DType weight = DType::fp32;
  DType acc = DType::fp32;
  DType out = DType::fp32;
  DType d = DType::fp32;
  Epilogue epilogue;
  friend bool operator==(const ConvSignature&, const ConvSignature&) = default;
};

struct FmhaSignature {
  FmhaKind kind = FmhaKind::forward;
  DType in = DType::fp32;
  DType out = DType::fp32;
  DType dtype_bias = DType::fp32;
  FmhaKv kv = FmhaKv::same;
  FmhaLengths lengths = FmhaLengths::equal;
  bool masked = false;  // by either mask, with any window
  FmhaBias bias = FmhaBias::none;
  bool soft_cap = false;
  bool lse = false;
  bool dropout = false;
  bool random = false;  // whether dropout's random values are stored
  FmhaPages pages = FmhaPages::none;
  FmhaCacheLayout cache_layout = FmhaCacheLayout::linear;
  FmhaQscale qscale = FmhaQscale::none;
  FmhaRotary rotary = FmhaRotary::none;
  bool rotate_q = false;
  bool dbias = false;  // backward: whether the bias's gradient is written
  friend bool operator==(const FmhaSignature&, const FmhaSignature&) = default;
};

struct RouteSignature {
  RouteScoring scoring = RouteScoring::softmax;
  DType in = DType::fp32;
  bool bias = false;
  bool order = false;
  friend bool operator==(const RouteSignature&, const RouteSignature&) = default;
};
using Signature =
    std::variant<GemmSignature, NormSignature, ConvSignature, FmhaSignature, RouteSignature>;

// On CPUs a tile is the cache block, a wave the thread grid (0: as many threads as the caller
// allows, shared between the dimensions that hold a 0), a warp tile the register block.
struct Algorithm {
  Pipeline pipeline = Pipeline::direct;
  Shape3 tile;
  Shape3 wave;
  Shape3 warp_tile;
  Scheduler scheduler = Scheduler::standard;
  Store store = Store::standard;
  SplitK split_k = SplitK::none;
  int splits = 1;        // how many blocks of a cluster share K (GPU)
  int slices = 1;        // into how many parts K is cut that are added in device memory (GPU)
  bool streamk = false;  // blocks share the steps of K of the last tiles (Hopper, AMD CDNA)
  int stages = 1;
  int cluster_m = 1;
  int cluster_n = 1;
  bool persistent = false;
  bool swap_ab = false;
  bool repack = false;     // copies A or B first when the pipeline cannot read it in place (GPU)
  bool pointwise = false;  // of a convolution: the kernel is one of GEMM's
  friend bool operator==(const Algorithm&, const Algorithm&) = default;
};

struct KernelSpec {
  Signature signature;
  Algorithm algorithm;
  std::string target;
  friend bool operator==(const KernelSpec&, const KernelSpec&) = default;
};

Op op_of(const KernelSpec& spec);

// A pattern over the word that a field has in a spec: {"layout", "rcr"}, {"pipeline", "pack*"}. A
// field of three numbers takes a number or '*' in each place: {"tile", "128x*x64"}. '*' and the
// empty pattern match everything. The field "name" is the kernel's whole name.
struct Wish {
  std::string field;
  std::string pattern;
  friend bool operator==(const Wish&, const Wish&) = default;
};

// The kernel's one name: C identifier, file name, cache prefix, label. Fields at their default are
// left out. parse_name(name_of(s)) == s, and equal names mean equal specs.
std::string name_of(const KernelSpec& spec);

// Throws Error{parse_error} that names the offending token and its place in the grammar.
KernelSpec parse_name(std::string_view name);

// JSON both ways, with every field by name.
std::string to_json(const KernelSpec& spec);
KernelSpec kernel_spec_from_json(std::string_view text);

// The signature that a kernel must have to run the problem.
Signature signature_of(const Problem& problem);

}  // namespace tessera
#pragma GCC visibility pop
