// Files and folders that nobody but this user can write: what they hold may be run as code.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tessera {

// Makes a folder and what is missing above it, all private (0700) whatever the umask is. A failure
// is left to the next step, whose error says why.
void make_private_folder(const std::filesystem::path& folder);

// Replaces `path` by a complete file that only this user may read and write (0600). It is not
// flushed. Throws Error{io_error}.
void write_private_file(const std::filesystem::path& path, std::string_view content);

// Why somebody else may have written this file or folder: "belongs to user 7, not to user 1000",
// "has mode 0775, with which others may write to it". Empty when only this user can, and when there
// is nothing. A link is looked at together with its target.
std::string why_not_private(const std::filesystem::path& path);

}  // namespace tessera
