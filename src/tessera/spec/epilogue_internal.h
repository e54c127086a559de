// The steps of an epilogue as words, for the line of a problem and the name of a kernel.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/epilogue.h"

namespace tessera {

struct EpilogueStep {
  EpilogueOp op;
  int num_d;  // how many D tensors the step takes
};

// The words of the steps: "bias", "multi_d_add2".
std::vector<std::string> epilogue_words(const Epilogue& epilogue);

// Reads such a word; false if it is not one. A multi_d step without a number takes 2.
bool read_epilogue_word(std::string_view word, EpilogueStep& step);

// Throws Error{parse_error} when there are too many steps or D tensors, or a step finds none left.
Epilogue epilogue_of(std::span<const EpilogueStep> steps);

}  // namespace tessera
