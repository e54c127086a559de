// Where Pythons keep packages, some of which bring libraries.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

// A Python's sys.prefix, to be searched from now on. A Python tells it, because an environment that
// is not activated has no variable that names it.
void add_python_prefix(const std::filesystem::path& prefix);

// The prefixes in the order of search: VIRTUAL_ENV, CONDA_PREFIX, those that were added, ~/.local,
// /usr/local and /usr.
std::vector<std::filesystem::path> python_prefixes();

// The folders of packages below them: lib/python3.*/site-packages and Debian's dist-packages, of
// each prefix the newest Python first.
std::vector<std::filesystem::path> python_packages();

// The files of this name, or of one that begins with it, that the process has loaded.
std::vector<std::filesystem::path> loaded_libraries(const std::string& name);

}  // namespace tessera
