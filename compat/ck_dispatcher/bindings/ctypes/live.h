// What the libraries share: the target, its dispatcher and kernels, copies, and the last error.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ck_tile/dispatcher/machine.hpp"

namespace ck_compat {

using ck_tile::dispatcher::Machine;

// A machine and the kernels that the library counts. It does not change once it is made.
struct Live {
  std::shared_ptr<Machine> machine;
  std::vector<tessera::KernelSpec> kernels;
  ck_tile::dispatcher::Timing timing;
  tessera::Dispatcher& dispatcher(bool is_deterministic = false) const {
    tessera::Dispatcher& chosen = machine->dispatcher_for(is_deterministic);
    chosen.set_timing(timing.cold, timing.repeat);
    return chosen;
  }
  const std::string& refusal() const { return machine->refusal; }
};

// The place of a library's Live, which its functions share.
class Slot {
 public:
  std::shared_ptr<const Live> get() const;
  void set(std::shared_ptr<const Live> live);
  // Makes it where it is not yet there.
  void ensure(const std::function<std::shared_ptr<const Live>()>& make);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Live> live_;
};

// `arch`: a target's name; empty and "native": TESSERA_TARGET, this machine's GPU, or its CPU.
// sets: names of preselected sets; those that the target lacks are left out.
std::shared_ptr<Live> make_live(const std::string& arch, const std::vector<std::string>& sets,
                                int cold, int repeat);
std::string target_text(const std::shared_ptr<const Live>& live);

// The calling thread's last sentence. Each library has its own, because each holds this file.
void set_error(const std::string& sentence);
const char* last_error();
// Keeps a text for the calling thread, until the next call.
const char* keep(std::string text);
// Copies a name; -1 where there is no room for it with its ending zero.
int copy_name(const std::string& name, char* buffer, int size);
// The name of a kernel by its number; -1 where there is none, with a sentence.
int copy_name_at(const std::shared_ptr<const Live>& live, int index, char* buffer, int size);

// What became of a call.
enum class Outcome { done, failed, no_kernel, invalid };
Outcome outcome_of(const tessera::Error& error);
// Runs `work`; its exceptions become the last error.
Outcome guarded(const std::function<void()>& work);

// Operands in the host's memory, where the kernels can read them: the same addresses on a CPU,
// copies on a GPU.
class Staging {
 public:
  explicit Staging(const Live& live);
  const void* read(const void* host, std::size_t bytes);
  // What the launch writes; copy_back() brings it to the host.
  void* write(void* host, std::size_t bytes);
  void copy_back();

 private:
  struct Written {
    void* host;
    const void* device;
    std::size_t bytes;
  };
  tessera::runtime::Place place_;
  bool in_place_;
  std::vector<tessera::runtime::DeviceBuffer> buffers_;
  std::vector<Written> written_;
};

// The registry's JSON as the original has it: metadata, statistics, kernels.
std::string registry_json(const Live& live);

}  // namespace ck_compat
