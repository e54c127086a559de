#include "tessera/spec/epilogue.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "tessera/spec/epilogue_internal.h"
#include "tessera/spec/words_internal.h"

namespace tessera {
namespace {

bool takes_one_d(EpilogueOp op) {
  return op == EpilogueOp::bias || op == EpilogueOp::add || op == EpilogueOp::multiply ||
         op == EpilogueOp::row_scale || op == EpilogueOp::col_scale;
}

DShape shape_of(EpilogueOp op) {
  if (op == EpilogueOp::row_scale) return DShape::along_m;
  const bool along_n = op == EpilogueOp::bias || op == EpilogueOp::col_scale;
  return along_n ? DShape::along_n : DShape::matrix;
}

bool takes_all_d(EpilogueOp op) {
  return op == EpilogueOp::multi_d_add || op == EpilogueOp::multi_d_multiply;
}

[[noreturn]] void refuse_epilogue(const std::string& message) {
  throw Error(ErrorCode::parse_error, message);
}

}  // namespace

std::string_view to_string(EpilogueOp op) { return word_of(op); }

int num_ops(const Epilogue& epilogue) {
  int count = kMaxEpilogueOps;
  while (count > 0 && epilogue.ops[static_cast<std::size_t>(count - 1)] == EpilogueOp::pass_through)
    --count;
  return count;
}

std::string invalid_reason(const Epilogue& epilogue) {
  int taken = 0;
  for (const EpilogueOp op : epilogue.ops) {
    const std::string reason = number_reason("epilogue op", static_cast<std::int64_t>(op),
                                             std::ssize(Words<EpilogueOp>::kAll) - 1);
    if (!reason.empty()) return reason;
    const int left = epilogue.num_d - taken;
    if (takes_one_d(op)) ++taken;
    if (!takes_all_d(op)) continue;
    if (left < 1) {
      return fmt::format("epilogue: {} takes all D tensors that remain, at least 1, got {} left",
                         to_string(op), std::max(left, 0));
    }
    taken += left;
  }
  if (epilogue.num_d > kMaxD) {
    return fmt::format("epilogue: at most {} D tensors, got {}", kMaxD, epilogue.num_d);
  }
  if (taken == epilogue.num_d) return "";
  return fmt::format("epilogue: its steps take {} D tensors, but num_d is {}", taken,
                     epilogue.num_d);
}

std::vector<std::string> epilogue_words(const Epilogue& epilogue) {
  std::vector<std::string> words;
  int taken = 0;
  for (int i = 0; i < num_ops(epilogue); ++i) {
    const EpilogueOp op = epilogue.ops[static_cast<std::size_t>(i)];
    words.emplace_back(to_string(op));
    if (takes_one_d(op)) ++taken;
    if (!takes_all_d(op)) continue;
    words.back() += std::to_string(epilogue.num_d - taken);
    taken = epilogue.num_d;
  }
  return words;
}

bool read_epilogue_word(std::string_view word, EpilogueStep& step) {
  std::string_view digits =
      word.substr(std::min(word.find_last_not_of("0123456789") + 1, word.size()));
  EpilogueOp op{};
  if (read_word(word, op)) digits = {};
  if (!read_word(word.substr(0, word.size() - digits.size()), op)) return false;
  if (!digits.empty() && !takes_all_d(op)) return false;
  int count = takes_one_d(op) ? 1 : 0;
  if (takes_all_d(op)) count = 2;
  if (!digits.empty() &&
      std::from_chars(digits.data(), digits.data() + digits.size(), count).ec != std::errc{}) {
    return false;
  }
  step = {op, count};
  return true;
}

Epilogue epilogue_of(std::span<const EpilogueStep> steps) {
  if (steps.size() > std::size_t{kMaxEpilogueOps}) {
    refuse_epilogue(
        fmt::format("epilogue: at most {} steps, got {}", kMaxEpilogueOps, steps.size()));
  }
  Epilogue epilogue;
  std::int64_t taken = 0;
  std::optional<EpilogueOp> took_all;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const EpilogueStep& step = steps[i];
    const bool takes = takes_one_d(step.op) || takes_all_d(step.op);
    if (took_all && takes) {
      refuse_epilogue(
          fmt::format("epilogue: {} takes all D tensors that remain, so that {} after it has none",
                      to_string(*took_all), to_string(step.op)));
    }
    if (takes_all_d(step.op)) {
      if (step.num_d < 1) {
        refuse_epilogue(fmt::format("epilogue: {} takes at least 1 D tensor, got {}",
                                    to_string(step.op), step.num_d));
      }
      took_all = step.op;
    }
    epilogue.ops[i] = step.op;
    taken += step.num_d;
  }
  if (taken > kMaxD) {
    refuse_epilogue(fmt::format("epilogue: at most {} D tensors, got {}", kMaxD, taken));
  }
  epilogue.num_d = static_cast<std::uint8_t>(taken);
  return epilogue;
}

std::string to_string(const Epilogue& epilogue) {
  const std::vector<std::string> words = epilogue_words(epilogue);
  const std::string text = words.empty() ? "none" : join(words, "+");
  if (invalid_reason(epilogue).empty()) return text;
  return fmt::format("{}(num_d={})", text, epilogue.num_d);
}

Epilogue parse_epilogue(std::string_view text) {
  if (text == "none") return {};
  std::vector<EpilogueStep> steps;
  for (const std::string_view word : split(text, '+')) {
    EpilogueStep step{};
    if (!read_epilogue_word(word, step)) {
      auto known = known_words<EpilogueOp>();
      if (text == word) known.emplace_back("none");
      refuse_epilogue(unknown_word(Words<EpilogueOp>::kNoun, word, known));
    }
    steps.push_back(step);
  }
  return epilogue_of(steps);
}

std::array<DUse, kMaxD> d_uses(const Epilogue& epilogue) {
  std::array<DUse, kMaxD> uses{};
  int next = 0;
  const int total = std::min<int>(epilogue.num_d, kMaxD);
  for (const EpilogueOp op : epilogue.ops) {
    int count = takes_one_d(op) ? 1 : 0;
    if (takes_all_d(op)) count = total - next;
    for (; count > 0 && next < total; --count, ++next) {
      uses[static_cast<std::size_t>(next)] = {op, shape_of(op)};
    }
  }
  return uses;
}

}  // namespace tessera
