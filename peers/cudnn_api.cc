#include "peers/cudnn_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "peers/peers.h"

namespace tessera::peers::cudnn {
namespace {

// It lies beside NVRTC, in a Python environment in a folder of its own, or where the system looks.
std::vector<std::string> library_files() {
  constexpr const char* kFile = "libcudnn.so.9";
  std::vector<std::string> names;
  for (const fs::path& folder : jit::nvrtc_places()) {
    names.push_back((folder / kFile).string());
    names.push_back((folder / "../../cudnn/lib" / kFile).string());
  }
  names.emplace_back(kFile);
  return names;
}

}  // namespace

// Functions by their C name without "cudnn".
struct Library::Api {
  void* library = nullptr;
  std::string file;
  void* handle = nullptr;
  std::vector<std::string> missing;

  std::size_t (*version)();
  const char* (*error_string)(int status);
  void (*last_error_string)(char* message, std::size_t bytes);
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*create_descriptor)(int kind, void** descriptor);
  int (*destroy_descriptor)(void* descriptor);
  int (*finalize)(void* descriptor);
  int (*set_attribute)(void* descriptor, int attribute, int type, std::int64_t count,
                       const void* values);
  int (*get_attribute)(void* descriptor, int attribute, int type, std::int64_t room,
                       std::int64_t* count, void* values);
  int (*execute)(void* handle, void* plan, void* pack);

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) missing.emplace_back(name);
  }
  void find_all() {
    find(version, "cudnnGetVersion");
    find(error_string, "cudnnGetErrorString");
    find(last_error_string, "cudnnGetLastErrorString");
    find(create, "cudnnCreate");
    find(destroy, "cudnnDestroy");
    find(create_descriptor, "cudnnBackendCreateDescriptor");
    find(destroy_descriptor, "cudnnBackendDestroyDescriptor");
    find(finalize, "cudnnBackendFinalize");
    find(set_attribute, "cudnnBackendSetAttribute");
    find(get_attribute, "cudnnBackendGetAttribute");
    find(execute, "cudnnBackendExecute");
  }
};

Library::Library(std::unique_ptr<Api> api) : api_(std::move(api)) {}

// The handle and the library stay: at the end of the process the driver may be gone already.
Library::~Library() = default;

std::unique_ptr<Library> Library::load() {
  auto api = std::make_unique<Api>();
  api->library = open_library(library_files(), api->file);
  if (api->library == nullptr) return nullptr;
  api->find_all();
  require_functions("cudnn", api->file, api->missing);
  return std::unique_ptr<Library>(new Library(std::move(api)));
}

std::string Library::version() const {
  const std::size_t version = version_number();
  return fmt::format("{}.{}.{} ({})", version / 10000, version / 100 % 100, version % 100,
                     api_->file);
}

std::size_t Library::version_number() const { return api_->version(); }

void Library::check(int status, const char* what, int which) const {
  if (status == 0) return;
  std::array<char, 512> last{};
  api_->last_error_string(last.data(), last.size() - 1);
  std::string words = last.data();
  std::replace(words.begin(), words.end(), '\n', ' ');
  throw Error(ErrorCode::unsupported,
              fmt::format("cudnn cannot compute this problem: {}{} gave {}{}", what,
                          which == 0 ? "" : fmt::format(" {}", which), api_->error_string(status),
                          words.empty() ? "" : ": " + words));
}

void Library::start() {
  if (api_->handle == nullptr) check(api_->create(&api_->handle), "cudnnCreate");
}

Descriptor Library::make(Kind kind) const {
  void* raw = nullptr;
  check(api_->create_descriptor(static_cast<int>(kind), &raw), "making a descriptor of kind",
        static_cast<int>(kind));
  return Descriptor(raw, api_->destroy_descriptor);
}

void Library::finish(const Descriptor& descriptor) const {
  check(api_->finalize(descriptor.get()), "finishing a descriptor");
}

void Library::set(const Descriptor& descriptor, Attribute attribute, As as, std::int64_t count,
                  const void* values) const {
  const int which = static_cast<int>(attribute);
  check(api_->set_attribute(descriptor.get(), which, static_cast<int>(as), count, values),
        "setting attribute", which);
}

void Library::set(const Descriptor& descriptor, Attribute attribute,
                  const std::vector<std::int64_t>& values) const {
  set(descriptor, attribute, As::int64, static_cast<std::int64_t>(values.size()), values.data());
}

void Library::set(const Descriptor& descriptor, Attribute attribute, std::int64_t value) const {
  set(descriptor, attribute, As::int64, 1, &value);
}

void Library::set(const Descriptor& descriptor, Attribute attribute, float value) const {
  set(descriptor, attribute, As::float32, 1, &value);
}

void Library::set(const Descriptor& descriptor, Attribute attribute, DataType value) const {
  set(descriptor, attribute, As::data_type, 1, &value);
}

void Library::set(const Descriptor& descriptor, Attribute attribute,
                  const Descriptor& value) const {
  set(descriptor, attribute, std::vector<Descriptor>{value});
}

void Library::set(const Descriptor& descriptor, Attribute attribute,
                  const std::vector<Descriptor>& values) const {
  std::vector<const void*> raw;
  for (const Descriptor& value : values) raw.push_back(value.get());
  set(descriptor, attribute, As::descriptor, std::ssize(raw), static_cast<const void*>(raw.data()));
}

void Library::set_handle(const Descriptor& descriptor, Attribute attribute) const {
  set(descriptor, attribute, As::handle, 1, static_cast<const void*>(&api_->handle));
}

std::int64_t Library::get(const Descriptor& descriptor, Attribute attribute, As as,
                          std::int64_t room, void* values) const {
  std::int64_t count = 0;
  const int which = static_cast<int>(attribute);
  check(api_->get_attribute(descriptor.get(), which, static_cast<int>(as), room, &count, values),
        "reading attribute", which);
  return count;
}

std::int64_t Library::get_number(const Descriptor& descriptor, Attribute attribute) const {
  std::int64_t value = 0;
  get(descriptor, attribute, As::int64, 1, &value);
  return value;
}

// The library copies each descriptor into one that the caller has made.
std::vector<Descriptor> Library::get_all(const Descriptor& descriptor, Attribute attribute,
                                         Kind kind, std::int64_t most) const {
  std::vector<Descriptor> all;
  std::vector<void*> raw;
  for (std::int64_t i = 0; i < most; ++i) {
    all.push_back(make(kind));
    raw.push_back(all.back().get());
  }
  const std::int64_t count =
      get(descriptor, attribute, As::descriptor, most, static_cast<void*>(raw.data()));
  all.resize(static_cast<std::size_t>(std::min(count, most)));
  return all;
}

void Library::execute(const Descriptor& plan, const Descriptor& pack) const {
  check(api_->execute(api_->handle, plan.get(), pack.get()), "running a plan");
}

}  // namespace tessera::peers::cudnn
