#include "tessera/families/fmha_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/family.h"

namespace tessera {
namespace {

std::string word_of(bool value) { return value ? "1" : "0"; }
std::string word_of(float value) { return fmt::format("{}", value); }
std::string word_of(std::int64_t value) { return std::to_string(value); }
std::string word_of(std::string_view value) { return std::string(value); }

template <class... Values>
std::vector<std::string> words_of(const Values&... values) {
  return {word_of(values)...};
}

// The last argument of the setter's last call; empty when there was none.
std::string last_argument_of(std::string_view setter, const std::vector<Setting>& settings) {
  const auto found = std::find_if(settings.rbegin(), settings.rend(),
                                  [&](const Setting& s) { return s.setter == setter; });
  return found == settings.rend() ? std::string() : found->arguments.back();
}

}  // namespace

using Builder = FmhaProblemBuilder;

Builder& Builder::call(std::string_view setter, std::vector<std::string> arguments) {
  settings_.push_back({std::string(setter), std::move(arguments)});
  return *this;
}

Builder& Builder::api_family(std::string_view word) { return call("api_family", words_of(word)); }
Builder& Builder::kernel_family(std::string_view word) {
  return call("kernel_family", words_of(word));
}
Builder& Builder::gfx_arch(std::string_view target) { return call("gfx_arch", words_of(target)); }
Builder& Builder::data_type(std::string_view word) { return call("data_type", words_of(word)); }
Builder& Builder::dims(std::int64_t hdim_q, std::int64_t hdim_v, std::int64_t batch,
                       std::int64_t seqlen_q, std::int64_t seqlen_k) {
  return call("dims", words_of(hdim_q, hdim_v, batch, seqlen_q, seqlen_k));
}
Builder& Builder::nheads(std::int64_t q, std::int64_t k) { return call("nheads", words_of(q, k)); }
Builder& Builder::mask_type(std::string_view word) { return call("mask_type", words_of(word)); }
Builder& Builder::bias_type(std::string_view word) { return call("bias_type", words_of(word)); }
Builder& Builder::lse(bool value) { return call("lse", words_of(value)); }
Builder& Builder::dropout(bool value, float p_drop) {
  return call("dropout", words_of(value, p_drop));
}
Builder& Builder::qscale_type(std::string_view word) { return call("qscale_type", words_of(word)); }
Builder& Builder::rope_type(std::string_view word) { return call("rope_type", words_of(word)); }
Builder& Builder::logits_soft_cap(bool value, float cap) {
  return call("logits_soft_cap", words_of(value, cap));
}
Builder& Builder::v_rowmajor(bool value) { return call("v_rowmajor", words_of(value)); }
Builder& Builder::group_mode(bool value) { return call("group_mode", words_of(value)); }
Builder& Builder::paged_kv(bool value) { return call("paged_kv", words_of(value)); }
Builder& Builder::fp8_static_quant(bool value) { return call("fp8_static_quant", words_of(value)); }
Builder& Builder::skip_min_seqlen_q(bool value, std::int64_t longest) {
  return call("skip_min_seqlen_q", words_of(value, longest));
}
Builder& Builder::sink(bool value) { return call("sink", words_of(value)); }
Builder& Builder::kv_cache(std::string_view layout, std::string_view table, std::int64_t page) {
  return call("kv_cache", words_of(layout, table, page));
}
Builder& Builder::window(std::int64_t left, std::int64_t right) {
  return call("window", words_of(left, right));
}
Builder& Builder::sink_size(std::int64_t tokens) { return call("sink_size", words_of(tokens)); }
Builder& Builder::max_seqlen(std::int64_t q, std::int64_t k) {
  return call("max_seqlen", words_of(q, k));
}
Builder& Builder::num_splits(std::int64_t parts) { return call("num_splits", words_of(parts)); }
Builder& Builder::bwd_flags(bool dbias, bool store_randval, bool deterministic) {
  return call("bwd_flags", words_of(dbias, store_randval, deterministic));
}

FmhaProblem Builder::build() const {
  // The settings of the choice are read by target() and deterministic().
  return std::get<FmhaProblem>(family_of(Op::fmha).from_settings(settings_).problem);
}

std::string Builder::target() const { return last_argument_of("gfx_arch", settings_); }

bool Builder::deterministic() const {
  return last_argument_of("bwd_flags", settings_) == word_of(true);
}

}  // namespace tessera
