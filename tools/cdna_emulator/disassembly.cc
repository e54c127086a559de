// Runs llvm-objdump on bytes in memory.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "program.h"

extern char** environ;

namespace tessera::cdna_emulator {

namespace {

constexpr const char* kNames[] = {"llvm-objdump-22", "llvm-objdump-21", "llvm-objdump-20",
                                  "llvm-objdump-19", "llvm-objdump"};

[[noreturn]] void refuse_tool(const std::string& sentence) {
  throw Finding{Finding::Kind::object, sentence};
}

std::vector<std::filesystem::path> folders_of_path() {
  std::vector<std::filesystem::path> folders;
  const char* path = std::getenv("PATH");
  const std::string list = path == nullptr ? "" : path;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) folders.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

std::string find_in(const std::vector<std::filesystem::path>& folders, const char* name) {
  for (const auto& folder : folders) {
    const std::string file = (folder / name).string();
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

// The folders where the compilers of PATH really lie, such as LLVM's own.
std::vector<std::filesystem::path> folders_of_compilers() {
  std::vector<std::filesystem::path> folders;
  const auto path = folders_of_path();
  for (const char* name : {"clang++-22", "clang++-19", "amdclang++", "clang++"}) {
    const std::string file = find_in(path, name);
    if (file.empty()) continue;
    std::error_code error;
    const auto real = std::filesystem::canonical(file, error);
    if (!error) folders.push_back(real.parent_path());
  }
  folders.emplace_back("/opt/rocm/llvm/bin");
  return folders;
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// The bytes as a file that the child sees under the name /dev/fd/N.
void fill_memory_file(Descriptor& file, std::span<const u8> bytes) {
  file.fd = memfd_create("code_object", 0);
  if (file.fd < 0)
    refuse_tool(std::string("No file in memory can be made: ") + std::strerror(errno) + ".");
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(file.fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0)
      refuse_tool(std::string("A file in memory was not written: ") + std::strerror(errno) + ".");
    done += static_cast<std::size_t>(n);
  }
}

constexpr std::size_t kMostText = std::size_t{1} << 28;  // bytes of a disassembly

// All that comes; nothing if it has not ended after so many seconds or is too much.
std::optional<std::string> read_all(int fd, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  std::string text;
  char buffer[65536];
  while (text.size() <= kMostText) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd ready{fd, POLLIN, 0};
    const int found = left.count() < 0 ? 0 : poll(&ready, 1, static_cast<int>(left.count()));
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) return {};
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return {};
}

// What a program prints, which is given words and has so many seconds.
std::string output_of(std::vector<std::string>& words, double seconds) {
  const std::string& program = words.front();
  Descriptor read_end, write_end;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    refuse_tool(std::string("No pipe can be made: ") + std::strerror(errno) + ".");
  read_end.fd = ends[0];
  write_end.fd = ends[1];
  fcntl(write_end.fd, F_SETPIPE_SZ, 1 << 20);  // fewer turns; a system may allow less
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.fd, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) refuse_tool("'" + program + "' cannot be run: " + std::strerror(error) + ".");
  close(write_end.fd);
  write_end.fd = -1;
  std::optional<std::string> text = read_all(read_end.fd, seconds);
  if (!text) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text) {
    refuse_tool("'" + program + "' did not end in " + std::to_string(std::lround(seconds)) +
                " s with less than " + std::to_string(kMostText) +
                " bytes; the code object may be damaged.");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    refuse_tool("'" + program +
                "' cannot disassemble the code object; LLVM 19 knows gfx90a and gfx942, "
                "LLVM 20 and later gfx950, too.");
  }
  return std::move(*text);
}

// Each file's part of the text begins with a line that has its name.
std::vector<std::string> split_by_file(const std::string& text,
                                       std::span<const std::string> names) {
  std::vector<std::size_t> begins;
  for (const std::string& name : names) {
    const std::size_t from = begins.empty() ? 0 : begins.back();
    const std::size_t found = text.find("\n" + name + ":", from);
    if (found == std::string::npos) {
      refuse_tool("llvm-objdump printed nothing of file " + std::to_string(begins.size() + 1) +
                  " of " + std::to_string(names.size()) + ".");
    }
    begins.push_back(found);
  }
  begins.push_back(text.size());
  std::vector<std::string> parts;
  for (std::size_t n = 0; n + 1 < begins.size(); ++n) {
    parts.push_back(text.substr(begins[n], begins[n + 1] - begins[n]));
  }
  return parts;
}

}  // namespace

std::string find_objdump() {
  if (const char* named = std::getenv("TESSERA_LLVM_OBJDUMP"); named != nullptr && *named != 0) {
    return named;
  }
  const auto path = folders_of_path();
  const auto compilers = folders_of_compilers();
  for (const char* name : kNames) {
    for (const auto* folders : {&path, &compilers}) {
      std::string found = find_in(*folders, name);
      if (!found.empty()) return found;
    }
  }
  return {};
}

std::vector<std::string> disassemble_all(std::span<const std::span<const u8>> objects,
                                         double seconds) {
  const std::string program = find_objdump();
  if (program.empty()) {
    refuse_tool(
        "The emulator needs llvm-objdump of LLVM 19 or later, and none was found in PATH, beside "
        "clang++ or in ROCm's folder. Debian's package llvm-22 has it.");
  }
  if (objects.empty()) return {};
  std::vector<Descriptor> files(objects.size());
  std::vector<std::string> words{program, "-d"};
  for (std::size_t n = 0; n < objects.size(); ++n) {
    fill_memory_file(files[n], objects[n]);
    words.push_back("/dev/fd/" + std::to_string(files[n].fd));
  }
  std::string text = output_of(words, seconds);
  if (objects.size() == 1) return {std::move(text)};
  return split_by_file(text, std::span(words).subspan(2));
}

std::string disassemble(std::span<const u8> bytes, double seconds) {
  return disassemble_all({&bytes, 1}, seconds).front();
}

}  // namespace tessera::cdna_emulator
