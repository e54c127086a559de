// What kernels on tiles can run.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/families/gemm/amx_internal.h"
#include "tessera/families/gemm/legality_internal.h"

namespace tessera::gemm {
namespace {

constexpr int kTileVectorBytes = 64;  // the vectors that pack a row of a tile

constexpr std::array kTileInstructions = {
    TileInstruction{DType::int8, "tdpbssd", "amxtile and amxint8"},
    TileInstruction{DType::bf16, "tdpbf16ps", "amxtile and amxbf16"},
};

constexpr Rule kAmx[] = {
    {[](const Case& c) { return c.target.vector_bytes == kTileVectorBytes; },
     [](const Case& c) {
       return fmt::format("amx is written for vectors of {} bytes, {} has {}", kTileVectorBytes,
                          c.target.name, c.target.vector_bytes);
     }},
    kUnusedFieldsRule,
    kThreadsRule,
    {[](const Case& c) {
       return find_tile_instruction(c.signature.a) != nullptr && c.signature.a == c.signature.b;
     },
     [](const Case& c) {
       return fmt::format("amx multiplies int8 or bf16, both operands of one type, got {} x {}",
                          to_string(c.signature.a), to_string(c.signature.b));
     }},
    {[](const Case& c) {
       const TileInstruction* i = find_tile_instruction(c.signature.a);
       return find_instruction_named(c, i->name) != nullptr;
     },
     [](const Case& c) {
       const TileInstruction* i = find_tile_instruction(c.signature.a);
       return fmt::format("{}; a processor with {} has it", no_instruction(c, i->name),
                          i->features);
     }},
    {[](const Case& c) { return c.algorithm.warp_tile == tile_block(c.signature.a); },
     [](const Case& c) {
       return fmt::format("amx multiplies tiles of {0}: the warp tile must be {1}, got {2}",
                          to_string(c.signature.a), to_string(tile_block(c.signature.a)),
                          to_string(c.algorithm.warp_tile));
     }},
    kPackedBytesRule,
};

}  // namespace

const TileInstruction* find_tile_instruction(DType operand) {
  const auto found = std::find_if(kTileInstructions.begin(), kTileInstructions.end(),
                                  [&](const TileInstruction& i) { return i.operand == operand; });
  return found == kTileInstructions.end() ? nullptr : &*found;
}

std::span<const Rule> amx_rules() { return kAmx; }

}  // namespace tessera::gemm
