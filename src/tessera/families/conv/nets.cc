// The file of nets' layers: a line for each net, and then a line for each of its layers.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "tessera/base/embedded.h"
#include "tessera/base/error.h"
#include "tessera/base/forever.h"
#include "tessera/base/text.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/conv/nets_internal.h"

namespace tessera::conv {
namespace {

[[noreturn]] void refuse_line(std::string_view line, std::string_view reason) {
  throw Error(ErrorCode::parse_error, fmt::format("nets: '{}': {}", line, reason));
}

// net NAME DOMAIN SIDE INPUT SOURCE
Net read_net(std::string_view line, std::span<const std::string_view> words) {
  if (words.size() != 6) {
    refuse_line(line, fmt::format("a net has 6 words, got {}", words.size()));
  }
  const bool is_unseen_net = words[3] == "unseen";
  if (!is_unseen_net && words[3] != "learned") {
    refuse_line(line, fmt::format("the side must be learned or unseen, got '{}'", words[3]));
  }
  return {.name = words[1],
          .domain = words[2],
          .side = is_unseen_net ? ProblemSide::unseen : ProblemSide::learned,
          .layers = {}};
}

// HOW_OFTEN [transposed] c=64 k=64 ...
ConvProblem read_layer(std::string_view line) {
  const std::size_t begin = line.find("c=");
  if (begin == std::string_view::npos) refuse_line(line, "a layer needs c=");
  const std::string words(line.substr(begin));
  return conv_of(parse_problem("conv direction=forward n=1 " + words));
}

std::vector<Net> without(std::span<const Net> nets, const std::set<std::string>& lines) {
  std::vector<Net> others;
  for (Net net : nets) {
    std::erase_if(net.layers,
                  [&](const ConvProblem& layer) { return lines.contains(to_string(layer)); });
    if (!net.layers.empty()) others.push_back(std::move(net));
  }
  return others;
}

std::vector<Net> nets_with(ProblemSide side) {
  std::vector<Net> some;
  std::copy_if(nets().begin(), nets().end(), std::back_inserter(some),
               [side](const Net& net) { return net.side == side; });
  return some;
}

std::vector<Net> unseen_nets() {
  std::set<std::string> learned;
  for (const Net& net : nets_with(ProblemSide::learned)) {
    for (const ConvProblem& layer : net.layers) learned.insert(to_string(Problem(layer)));
  }
  return without(nets_with(ProblemSide::unseen), learned);
}

}  // namespace

std::vector<Net> read_nets(std::string_view text) {
  std::vector<Net> all;
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split_words(line);
    if (words.empty() || words[0] == "#") continue;
    if (words[0] == "net") {
      all.push_back(read_net(line, words));
    } else if (all.empty()) {
      refuse_line(line, "a layer must follow its net");
    } else {
      all.back().layers.push_back(read_layer(line));
    }
  }
  return all;
}

std::span<const Net> nets() {
  static const Forever<std::vector<Net>> kNets(read_nets(net_files()[0].content));
  return *kNets;
}

std::span<const Net> nets_of(ProblemSide side) {
  static const Forever<std::vector<Net>> kLearned(nets_with(ProblemSide::learned));
  static const Forever<std::vector<Net>> kUnseen(unseen_nets());
  return side == ProblemSide::unseen ? *kUnseen : *kLearned;
}

}  // namespace tessera::conv
