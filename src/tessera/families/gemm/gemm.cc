#include "tessera/families/gemm/gemm.h"

#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

const Family& family() {
  static constexpr Extras kExtras = {
      .instances = instances, .prepack = prepack, .unpacked = unpacked, .twin = twin};
  static constexpr Family kFamily = {
      .op = Op::gemm,
      .abi = kAbi,
      .verb = "multiply",
      .extras = &kExtras,
      .validate = validate,
      .tensors = tensors,
      .pointer = pointer,
      .set_pointer = set_pointer,
      .is_legal = tile::is_legal<Types>,
      .is_deterministic = is_deterministic,
      .supports = supports,
      .enumerate = enumerate,
      .combinations = combinations,
      .derived = derived,
      .candidates = candidates,
      .legal_candidates = legal_candidates,
      .general = general,
      .emit = tile::emit<Types>,
      .estimate = tile::estimate<Types>,
      .features = features,
      .features_fit = features_fit,
      .is_described = is_described,
      .extract = extract,
      .bind = tile::bind<Types>,
      .verify = verify,
      .reference = reference,
      .compare = compare,
      .plain = plain,
      .flops = flops,
      .bytes = bytes,
      .model_key = model_key,
      .facts = facts,
      .roof = roof,
      .retyped = retyped,
      .from_words = from_words,
      .problem_sets = problem_sets,
      .draw = draw,
      .samples = samples,
  };
  return kFamily;
}

}  // namespace tessera::gemm
