#include "tessera/families/gemm/gemm.h"

#include "tessera/families/tile/usual.h"

namespace tessera::gemm {

std::string stage(const KernelSpec&, std::string_view entry) {
  return tile::stage_of("multiply", entry);
}

const Family& family() {
  static constexpr Family kFamily = {
      .op = Op::gemm,
      .abi = kAbi,
      .validate = validate,
      .tensors = tensors,
      .pointer = pointer,
      .set_pointer = set_pointer,
      .is_legal = is_legal,
      .is_deterministic = is_deterministic,
      .supports = supports,
      .enumerate = enumerate,
      .combinations = combinations,
      .derived = derived,
      .candidates = candidates,
      .legal_candidates = legal_candidates,
      .general = general,
      .preselected = preselected,
      .preselected_names = preselected_names,
      .is_essential = is_essential,
      .receipts = tile::no_receipts,
      .receipt_problems = tile::no_receipt_problems,
      .tuned_length = tile::no_tuned_length,
      .emit = emit,
      .source_name = name_of,
      .instances = instances,
      .estimate = estimate,
      .features = features,
      .features_fit = features_fit,
      .is_described = is_described,
      .extract = extract,
      .bind = bind,
      .stage = stage,
      .prepack = prepack,
      .unpacked = unpacked,
      .verify = verify,
      .reference = reference,
      .compare = compare,
      .plain = plain,
      .twin = twin,
      .flops = flops,
      .bytes = bytes,
      .model_key = model_key,
      .facts = facts,
      .roof = roof,
      .retyped = retyped,
      .from_words = from_words,
      .from_settings = tile::no_builder<Op::gemm>,
      .problem_sets = problem_sets,
      .draw = draw,
      .samples = samples,
  };
  return kFamily;
}

}  // namespace tessera::gemm
