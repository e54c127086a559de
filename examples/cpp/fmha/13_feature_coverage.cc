// Every feature of attention by itself and all together, on a small problem: the kernel that is
// chosen, and its result verified against the fp64 reference. TESSERA_TARGET=sm90a runs them on a
// GPU.
#include <tessera/tools.hpp>

#include <cstdio>
#include <string>

namespace {

struct Feature {
  const char* what;
  const char* fields;  // besides the sizes
};
constexpr Feature kFeatures[] = {
    {"fp32", ""},
    {"bf16", "dtype=bf16"},
    {"fp16 in, fp32 out", "dtype=fp16 out=fp32"},
    {"groups of heads", "heads_kv=2"},
    {"one head of keys", "heads_kv=1"},
    {"unequal heads", "hdim=48 hdim_v=40"},
    {"heads before tokens", "q_stride_h=1120 q_stride_s=40 q_stride_b=4480"},
    {"causal", "mask=top_left"},
    {"causal, at the end", "mask=bottom_right"},
    {"a window", "mask=bottom_right window_left=9 window_right=2"},
    {"a window and sinks", "mask=top_left window_left=5 sink=3"},
    {"an element-wise bias", "bias=elementwise"},
    {"one bias for all heads", "bias=elementwise bias_stride_b=0 bias_stride_h=0"},
    {"ALiBi", "bias=alibi"},
    {"a soft cap", "soft_cap=4"},
    {"a scale", "scale=0.4"},
    {"the log-sum-exp", "lse=1"},
    {"packed sequences", "lengths=packed"},
    {"padded sequences", "lengths=padded"},
    {"short ones left out", "lengths=packed skip_q=6"},
    {"fp8 with factors", "dtype=fp8 out=fp8 qscale=per_block qscale_block_q=16"},
    {"all together",
     "dtype=bf16 heads_kv=2 mask=bottom_right window_left=20 sink=2 bias=elementwise soft_cap=9 "
     "lse=1 lengths=padded skip_q=2"},
};

// The sizes that the fields do not set themselves.
std::string line_of(const std::string& fields) {
  std::string line = "fmha batch=3 heads=4 seqlen_q=28 seqlen_k=35 ";
  if (fields.find("hdim=") == std::string::npos) line += "hdim=40 ";
  return line + fields;
}

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  int verified = 0;
  for (const auto& [what, fields] : kFeatures) {
    const tessera::Problem problem = tessera::parse_problem(line_of(fields));
    const auto owned = tessera::measure::random_operands(problem, 42);
    const auto placed = tessera::measure::place_operands(owned, place);
    tessera::RunOptions run;
    run.verify = true;  // throws unless every element is within its tolerance
    dispatcher.run(problem, placed.operands, run);
    std::printf("%-24s %s\n", what, dispatcher.kernel_for(problem).name.c_str());
    ++verified;
  }
  std::printf("%d features verified\n", verified);
  return verified == int(std::size(kFeatures)) ? 0 : 1;
}
