// What the libraries share: the target, its dispatcher and kernels, copies, and the last error.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "machine.h"

namespace ck_compat {

// A machine, the kernels that the library counts, and the choices that were made.
class Live {
 public:
  // `arch`: a target's name; empty and "native": TESSERA_TARGET, this machine's GPU, or its CPU.
  // sets: names of preselected sets; those that the target lacks are left out.
  Live(const std::string& arch, const std::vector<std::string>& sets, int cold, int repeat);

  const std::shared_ptr<Machine> machine;
  std::vector<tessera::KernelSpec> kernels;

  tessera::Dispatcher& dispatcher(bool is_deterministic = false) const;
  // Whether nothing can run here; the reason becomes the last error.
  bool is_refused() const;
  // The chosen kernel's name; nothing where there is none, with a sentence. Builds nothing, and
  // chooses once for a key, which tells problems apart.
  std::optional<std::string> chosen(std::string key,
                                    const std::function<tessera::Problem()>& problem) const;

 private:
  const Timing timing_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::string> chosen_;
};

// The bytes of a struct of numbers, as Live::chosen() takes them.
template <class Numbers>
std::string key_of(const Numbers& numbers) {
  return {reinterpret_cast<const char*>(&numbers), sizeof numbers};
}

// A library's Live, which its functions share.
class Library {
 public:
  using Make = std::function<std::shared_ptr<const Live>()>;

  // `first`: the function that must be called before all others.
  explicit Library(const char* first) : first_(first) {}
  // Makes it anew, or only where it is not yet there: 0, or -1 with a sentence.
  int renew(const Make& make);
  int ensure(const Make& make);
  void end();

  // Null where it is not initialised; required() says so.
  std::shared_ptr<const Live> get() const;
  std::shared_ptr<const Live> required() const;
  int kernel_count() const;
  // The name of a kernel by its number; -1 where there is none, with a sentence.
  int copy_name_at(int index, char* buffer, int size) const;
  const char* target() const;

 private:
  const char* first_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Live> live_;
};

// The calling thread's last sentence. Each library has its own, because each holds this file.
void set_error(const std::string& sentence);
const char* last_error();
// Keeps a text for the calling thread, until the next call.
const char* keep(std::string text);
// Copies a name; -1 where there is no room for it with its ending zero.
int copy_name(const std::string& name, char* buffer, int size);

// What became of a call.
enum class Outcome { done, failed, no_kernel, invalid };
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

}  // namespace ck_compat
