#include "live.h"

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string_view>

namespace ck_compat {
namespace {

thread_local std::string error_text;
thread_local std::string kept_text;

std::string escaped(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// A GPU whose kernels run here, or nothing.
std::string gpu_here() {
  for (const std::string& name : tessera::target_names()) {
    const tessera::Target target = tessera::load_target(name);
    if (target.backend == "cpu") continue;
    const tessera::runtime::Backend* backend = tessera::runtime::find_backend(target);
    if (backend != nullptr && backend->unavailable_reason(target).empty()) return name;
  }
  return {};
}

std::string chosen_target(const std::string& arch, std::string& why) {
  const std::string name = arch.substr(0, arch.find(':'));
  if (!name.empty() && name != "native") {
    why = "as asked";
    return name;
  }
  const char* wanted = std::getenv("TESSERA_TARGET");
  if (wanted != nullptr && *wanted != '\0') {
    why = "as TESSERA_TARGET says";
    return wanted;
  }
  const std::string gpu = gpu_here();
  why = gpu.empty() ? "this machine's CPU, because no GPU was found that runs kernels"
                    : "this machine's GPU";
  return gpu;
}

// Of a machine that is not here this is a sentence.
std::string refusal_of(const tessera::Target& target) {
  const tessera::runtime::Backend* backend = tessera::runtime::find_backend(target);
  if (backend != nullptr) return backend->unavailable_reason(target);
  return "target '" + target.name + "' cannot run here: this build has no '" + target.backend +
         "' backend";
}

}  // namespace

std::shared_ptr<const Live> Slot::get() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

void Slot::set(std::shared_ptr<const Live> live) {
  const std::lock_guard lock(mutex_);
  live_ = std::move(live);
}

void Slot::ensure(const std::function<std::shared_ptr<const Live>()>& make) {
  const std::lock_guard lock(mutex_);
  if (live_ == nullptr) live_ = make();
}

std::shared_ptr<Live> make_live(const std::string& arch, const std::vector<std::string>& sets,
                                int cold, int repeat) {
  auto live = std::make_shared<Live>();
  tessera::DispatcherOptions options;
  options.target = chosen_target(arch, live->why);
  live->dispatcher = std::make_unique<tessera::Dispatcher>(options);
  live->dispatcher->set_timing(cold, repeat);
  const tessera::Target& target = live->dispatcher->target();
  live->refusal = refusal_of(target);
  for (const std::string& set : sets) {
    try {
      const tessera::KernelSet found =
          tessera::KernelSetBuilder(set, target).preselected(set).build();
      live->kernels.insert(live->kernels.end(), found.specs.begin(), found.specs.end());
    } catch (const tessera::Error& error) {
      if (error.code() != tessera::ErrorCode::not_found &&
          error.code() != tessera::ErrorCode::unsupported) {
        throw;
      }
      set_error(error.what());
    }
  }
  return live;
}

std::string target_text(const std::shared_ptr<const Live>& live) {
  if (live == nullptr) return "not initialised";
  return "target " + live->dispatcher->target().name + " (" + live->why + ")";
}

void set_error(const std::string& sentence) { error_text = sentence; }
const char* last_error() { return error_text.c_str(); }

const char* keep(std::string text) {
  kept_text = std::move(text);
  return kept_text.c_str();
}

int copy_name(const std::string& name, char* buffer, int size) {
  if (buffer == nullptr || size <= static_cast<int>(name.size())) {
    set_error("a buffer of " + std::to_string(size) + " bytes has no room for '" + name +
              "', which needs " + std::to_string(name.size() + 1));
    return -1;
  }
  std::memcpy(buffer, name.c_str(), name.size() + 1);
  return 0;
}

Outcome outcome_of(const tessera::Error& error) {
  switch (error.code()) {
    case tessera::ErrorCode::invalid_argument:
    case tessera::ErrorCode::parse_error:
      return Outcome::invalid;
    case tessera::ErrorCode::unsupported:
    case tessera::ErrorCode::not_found:
    case tessera::ErrorCode::illegal_spec:
    case tessera::ErrorCode::jit_disabled:
      return Outcome::no_kernel;
    default:
      return Outcome::failed;
  }
}

Outcome guarded(const std::function<void()>& work) {
  try {
    work();
    return Outcome::done;
  } catch (const tessera::Error& error) {
    set_error(error.what());
    return outcome_of(error);
  } catch (const std::exception& error) {
    set_error(error.what());
    return Outcome::failed;
  }
}

Staging::Staging(const Live& live)
    : place_{&tessera::runtime::backend_for(live.dispatcher->target()), {}},
      in_place_(place_.backend->uses_host_memory()) {}

const void* Staging::read(const void* host, std::size_t bytes) {
  if (in_place_ || host == nullptr) return host;
  buffers_.emplace_back(place_, bytes);
  place_.backend->copy_to_device(buffers_.back().data(), host, bytes, place_.options);
  return buffers_.back().data();
}

void* Staging::write(void* host, std::size_t bytes) {
  if (in_place_ || host == nullptr) return host;
  buffers_.emplace_back(place_, bytes);
  written_.push_back({host, buffers_.back().data(), bytes});
  return buffers_.back().data();
}

void Staging::copy_back() {
  if (in_place_) return;
  place_.backend->synchronize(place_.options);
  for (const Written& one : written_) {
    place_.backend->copy_to_host(one.host, one.device, one.bytes, place_.options);
  }
}

namespace {

std::string shape_json(const tessera::Shape3& shape) {
  return "{\"m\": " + std::to_string(shape.m) + ", \"n\": " + std::to_string(shape.n) +
         ", \"k\": " + std::to_string(shape.k) + "}";
}

std::string kernel_json(const tessera::KernelSpec& spec) {
  const tessera::Algorithm& how = spec.algorithm;
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  const auto* gemm = std::get_if<tessera::GemmSignature>(&spec.signature);
  const std::string name = tessera::name_of(spec);
  return "{\"identifier\": " + escaped(name) + ", \"name\": " + escaped(name) +
         ", \"algorithm\": {\"tile_shape\": " + shape_json(how.tile) +
         ", \"wave_shape\": " + shape_json(how.wave) +
         ", \"warp_tile_shape\": " + shape_json(how.warp_tile) +
         ", \"pipeline\": " + escaped(to_string(how.pipeline)) +
         ", \"scheduler\": " + escaped(to_string(how.scheduler)) +
         ", \"persistent\": " + flag(how.persistent) +
         ", \"double_buffer\": " + flag(how.pipeline == tessera::Pipeline::compv4) +
         ", \"preshuffle\": " + flag(gemm != nullptr && gemm->preshuffled_b) +
         ", \"transpose_c\": " + flag(how.swap_ab) + "}, \"gfx_arch\": " + escaped(spec.target) +
         "}";
}

std::string counts_json(const std::map<std::string, int>& counts) {
  std::string text = "{";
  for (const auto& [word, count] : counts) {
    text += (text.size() > 1 ? ", " : "") + escaped(word) + ": " + std::to_string(count);
  }
  return text + "}";
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &parts);
  return text;
}

}  // namespace

std::string registry_json(const Live& live) {
  std::map<std::string, int> types, pipelines, schedulers;
  std::string rows;
  for (const tessera::KernelSpec& spec : live.kernels) {
    if (const auto* gemm = std::get_if<tessera::GemmSignature>(&spec.signature)) {
      ++types[std::string(to_string(gemm->a))];
    }
    ++pipelines[std::string(to_string(spec.algorithm.pipeline))];
    ++schedulers[std::string(to_string(spec.algorithm.scheduler))];
    rows += (rows.empty() ? "\n    " : ",\n    ") + kernel_json(spec);
  }
  return "{\n  \"metadata\": {\"timestamp\": " + escaped(now_text()) +
         ", \"total_kernels\": " + std::to_string(live.kernels.size()) +
         ", \"export_version\": \"1.0\", \"dispatcher_version\": \"1.0.0\"},\n"
         "  \"statistics\": {\"by_datatype\": " +
         counts_json(types) + ", \"by_pipeline\": " + counts_json(pipelines) +
         ", \"by_scheduler\": " + counts_json(schedulers) + "},\n  \"kernels\": [" + rows +
         "]\n}\n";
}

}  // namespace ck_compat
