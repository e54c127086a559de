// A learned model chooses: its folder, or the forest's file in it, is an argument.
//   09_ml_heuristic --model models/gemm_avx512_fp32/model.txt.gz [PROBLEM...]
#include <tessera/tools.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int choose_by(const std::shared_ptr<const tessera::Model>& model, const tessera::Problem& problem) {
  const auto extract = tessera::family_of(problem).extract;
  const tessera::Target target =
      model->machine ? *model->machine : tessera::load_target(model->manifest.target);
  tessera::ChooseOptions options;
  options.threads = model->manifest.threads;
  options.rankers = {tessera::make_model_ranker(model, extract)};

  const auto begin = std::chrono::steady_clock::now();
  const tessera::Decision decision = tessera::choose(problem, target, options);
  std::printf("problem    %s\nkernel     %s\nchosen by  %s: %s\nselection  %.1f us\n",
              tessera::to_string(problem).c_str(), decision.name.c_str(),
              std::string(tessera::to_string(decision.source)).c_str(), decision.why.c_str(),
              1e6 * seconds_since(begin));

  // The check: the kernel of the decision is legal there, and the estimate knows it too.
  const bool is_good = tessera::is_legal(decision.spec, target) &&
                       tessera::supports(decision.spec, problem, target) &&
                       decision.source == tessera::ChoiceSource::learned;
  std::printf("check      %s\n", is_good ? "legal, supported, learned" : "FAILED");
  return is_good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2 || words[0] != "--model") {
    std::puts("usage: 09_ml_heuristic --model FOLDER|FILE[.gz] [gemm m=... n=... k=...]");
    return 2;
  }
  std::string line = "gemm m=512 n=1024 k=768";
  if (words.size() > 2) line.clear();
  for (std::size_t i = 2; i < words.size(); ++i) line += words[i] + " ";
  try {
    std::filesystem::path folder = words[1];
    if (std::filesystem::is_regular_file(folder)) folder = folder.parent_path();
    const auto model = std::make_shared<const tessera::Model>(tessera::load_model(folder));
    return choose_by(model, tessera::parse_problem(line));
  } catch (const tessera::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
