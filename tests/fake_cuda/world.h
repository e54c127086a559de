// What the fake driver pretends: contexts, memory, modules, streams, and which call is to fail.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "elf_files.h"
#include "fake_cuda.h"
#include "fake_gemm.h"
#include "fake_norm.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_cuda {

using Result = int;
using Pointer = std::uint64_t;
constexpr int kMaxDevices = 8;

struct Context {
  int device;
  int holders = 0;
  Result lost = 0;
};
struct Module {
  Context* context;
  int number;  // of its binary
  std::map<std::string, int*> abi;
};
struct Function {
  Context* context;
  Module* module;
  std::string name;
  int max_shared_bytes = 0;
  int any_cluster = 0;
};
inline std::size_t rounded(std::size_t bytes) { return (bytes + 511) / 512 * 512; }
struct Block {
  std::size_t bytes;
  int device;
};
struct Event {
  Context* context;
  void* stream = nullptr;  // that it was recorded on
  double milliseconds = -1;
};
struct Config {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  struct Attribute {
    int id;
    alignas(8) unsigned value[16];
  } * attributes;
  unsigned num_attributes;
};

// Never returns from kernels whose name holds FAKE_CUDA_HANG_ON.
inline void run_gemm_or_hang(const LaunchRecord& record) {
  const char* which = std::getenv("FAKE_CUDA_HANG_ON");
  while (which != nullptr && std::strstr(record.kernel, which) != nullptr) pause();
  run_gemm(record);
}

// Faults of the whole process, by its environment.
inline void read_faults(Settings& settings) {
  const auto read = [](const char* name, int& value) {
    if (const char* text = std::getenv(name)) value = std::atoi(text);
  };
  read("FAKE_CUDA_FAULT_CALL", settings.fault_call);
  read("FAKE_CUDA_FAULT_RESULT", settings.fault_result);
  read("FAKE_CUDA_FAULT_LASTS", settings.fault_lasts);
  if (const char* text = std::getenv("FAKE_CUDA_FAULT_NAME")) {
    std::strncpy(settings.fault_name, text, sizeof(settings.fault_name) - 1);
  }
}

// All of it, under one lock.
struct World {
  std::recursive_mutex mutex;
  Settings settings;
  Counters counters{};
  std::vector<LaunchRecord> records;
  std::vector<std::unique_ptr<Context>> made;  // lost ones too: others may compare with them
  std::map<int, Context*> contexts;            // by device
  std::map<Pointer, Block> memory;
  std::multimap<std::size_t, Pointer> spare;  // of lost contexts, by size: given again first
  std::set<Module*> modules;
  std::set<Function*> functions;
  std::set<Event*> events;
  std::map<void*, Result> pending;  // by stream: what shows when it is waited for
  double now = 0;
  pid_t process = 0;  // that called cuInit
};

inline World& world() {
  static World* instance = [] {
    auto* made = new World;
#ifdef FAKE_CUDA_OLD
    made->settings.cuda_version = 11070;
#endif
    if (const char* text = std::getenv("FAKE_CUDA_DEVICES"))
      made->settings.devices = std::atoi(text);
    if (const char* text = std::getenv("FAKE_CUDA_MAJOR")) {
      std::fill_n(made->settings.major, kMaxDevices, std::atoi(text));
    }
    const char* kernel = std::getenv("FAKE_CUDA_KERNEL");
    const std::string wanted = kernel == nullptr ? "" : kernel;
    if (wanted == "gemm") made->settings.kernel = run_gemm;
    if (wanted == "norm") made->settings.kernel = run_norm;
    if (wanted == "wrong") made->settings.kernel = run_wrong_gemm;
    if (wanted == "hang") made->settings.kernel = run_gemm_or_hang;
    if (wanted == "crash") made->settings.async_result = 700;
    read_faults(made->settings);
    return made;
  }();
  return *instance;
}

// A thread's contexts. No destructor: statics may launch while the process exits.
struct Stack {
  static constexpr int kMost = 256;
  Context* contexts[kMost];
  int size;

  Context* top() const { return size == 0 ? nullptr : contexts[size - 1]; }
};
inline thread_local constinit Stack t_stack{};

struct Locked {
  World& w = world();
  std::lock_guard<std::recursive_mutex> lock{w.mutex};
};

inline constexpr Result kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100,
                        kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
                        kInvalidHandle = 400, kNotFound = 500, kContextIsDestroyed = 709;

inline bool is_sticky(Result result) { return result >= 700 && result <= 720 && result != 701; }

// The ABI number of a cubin: what its symbol NAME_abi holds, or, of one without symbols, what fake
// NVRTC puts behind the headers. 0: it is no ELF file, or says none.
inline int number_of(const void* image) {
  const auto* bytes = static_cast<const char*>(image);
  const std::string headers = tessera::cubin_of("");
  if (std::memcmp(bytes, headers.data(), EI_CLASS + 1) != 0) return 0;
  const auto* file = static_cast<const Elf64_Ehdr*>(image);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes + file->e_shoff);
  for (const Elf64_Shdr* table = sections; table < sections + file->e_shnum; ++table) {
    if (table->sh_type != SHT_SYMTAB) continue;
    const char* const names = bytes + sections[table->sh_link].sh_offset;
    const auto* const symbols = reinterpret_cast<const Elf64_Sym*>(bytes + table->sh_offset);
    for (std::size_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); ++i) {
      if (!std::string_view(names + symbols[i].st_name).ends_with("_abi")) continue;
      const char* const section = bytes + sections[symbols[i].st_shndx].sh_offset;
      return *reinterpret_cast<const int*>(section + symbols[i].st_value);
    }
    return 0;
  }
  return std::atoi(bytes + headers.size());
}

// Whether this call is to fail: see Settings. A failure that ends contexts ends the current one.
inline Result fault_at(const char* function) {
  const Locked l;
  const Settings& wanted = l.w.settings;
  if (wanted.fault_name[0] != 0 && std::strcmp(wanted.fault_name, function) != 0) return 0;
  const int call = ++l.w.counters.calls;
  if (wanted.fault_call == 0 || call < wanted.fault_call) return 0;
  if (call > wanted.fault_call && wanted.fault_lasts == 0) return 0;
  if (call == wanted.fault_call) {
    std::strncpy(l.w.counters.fault_hit, function, sizeof(l.w.counters.fault_hit) - 1);
  }
  if (is_sticky(wanted.fault_result) && t_stack.top() != nullptr) {
    t_stack.top()->lost = wanted.fault_result;
  }
  return wanted.fault_result;
}

inline Result current(World& w, Context*& context) {
  if (w.process != getpid()) return kNotInitialized;
  if (t_stack.top() == nullptr) return kInvalidContext;
  context = t_stack.top();
  return context->lost;
}

// Writes outside of device memory are what a real device would stop for.
inline const Block* block_of(World& w, Pointer pointer, std::size_t bytes) {
  auto after = w.memory.upper_bound(pointer);
  if (after == w.memory.begin()) return nullptr;
  --after;
  return pointer + bytes <= after->first + after->second.bytes ? &after->second : nullptr;
}

// A stream that its owner has destroyed.
inline bool is_gone(const World& w, void* stream) {
  return stream != nullptr && stream == w.settings.gone_stream;
}

inline void destroy(World& w, Module* module) {
  std::erase_if(w.functions, [&](Function* function) {
    const std::unique_ptr<Function> owner(function->module == module ? function : nullptr);
    return owner != nullptr;
  });
  for (const auto& [name, value] : module->abi) {
    w.memory.erase(reinterpret_cast<Pointer>(value));
    std::free(value);
  }
  delete module;
}

// With all that belongs to it; its handle is known, and dead.
inline void destroy_context(World& w, int device) {
  Context*& primary = w.contexts[device];
  std::erase_if(w.modules, [&](Module* module) {
    if (module->context != primary) return false;
    destroy(w, module);
    return true;
  });
  std::erase_if(w.events, [&](Event* event) {
    const std::unique_ptr<Event> owner(event->context == primary ? event : nullptr);
    return owner != nullptr;
  });
  std::erase_if(w.memory, [&](const auto& item) {
    if (item.second.device != device) return false;
    w.spare.emplace(rounded(item.second.bytes), item.first);
    return true;
  });
  primary->lost = kContextIsDestroyed;
  primary = nullptr;
}

inline void destroy_unless_held(World& w, int device) {
  Context*& primary = w.contexts[device];
  if (primary == nullptr || primary->holders > 0 || w.settings.other_holder != 0) return;
  destroy_context(w, device);
}

}  // namespace fake_cuda
