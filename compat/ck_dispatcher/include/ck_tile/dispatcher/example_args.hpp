// The command line of a small program: flags and options with defaults.
//
//   ExampleArgs args("Example 01", "A product");
//   args.add_option("--size", "1024", "M, N and K");
//   if (!args.parse(argc, argv)) return 0;  // --help was printed
//   const int size = args.get_int("--size");
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace ck_tile::dispatcher::utils {

class ExampleArgs {
 public:
  explicit ExampleArgs(const std::string& name, const std::string& description = "")
      : name_(name), description_(description) {
    add_flag("--help", "print this and end");
  }

  void add_flag(const std::string& name, const std::string& help) {
    flags_[name] = false;
    rows_.push_back({name, help, ""});
  }
  void add_option(const std::string& name, const std::string& value, const std::string& help) {
    options_[name] = value;
    rows_.push_back({name, help, value});
  }

  // False where help was asked for, and printed. What is neither a flag nor an option is
  // positional; an option of the form --name=value that is not known changes nothing.
  bool parse(int argc, char* argv[]) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "--help" || word == "-h") {
        print_help();
        return false;
      }
      const std::size_t equals = word.find('=');
      if (flags_.count(word) != 0) {
        flags_[word] = true;
      } else if (equals != std::string::npos) {
        set(word.substr(0, equals), word.substr(equals + 1));
      } else if (options_.count(word) != 0 && i + 1 < argc) {
        set(word, argv[++i]);
      } else {
        positional_.push_back(word);
      }
    }
    return true;
  }

  bool has(const std::string& name) const {
    const auto found = flags_.find(name);
    return found != flags_.end() && found->second;
  }
  std::string get(const std::string& name, const std::string& other = "") const {
    const auto found = options_.find(name);
    return found == options_.end() ? other : found->second;
  }
  // `other` where the option is unknown, empty or no number.
  int get_int(const std::string& name, int other = 0) const {
    return number(name, other, [](const char* text, char** end) {
      return static_cast<int>(std::strtol(text, end, 10));
    });
  }
  float get_float(const std::string& name, float other = 0) const {
    return number(name, other, std::strtof);
  }
  const std::vector<std::string>& positional() const { return positional_; }

  void print_help() const {
    std::cout << "\n  " << name_ << "\n";
    if (!description_.empty()) std::cout << "  " << description_ << "\n";
    std::cout << "\nOptions:\n";
    std::size_t width = 0;
    for (const Row& row : rows_) width = std::max(width, row.name.size());
    for (const Row& row : rows_) {
      std::cout << "  " << std::left << std::setw(static_cast<int>(width) + 2) << row.name
                << row.help;
      if (!row.value.empty()) std::cout << " (default: " << row.value << ")";
      std::cout << "\n";
    }
    std::cout << "\n";
  }

 private:
  struct Row {
    std::string name, help, value;
  };

  void set(const std::string& name, const std::string& value) {
    if (options_.count(name) != 0) options_[name] = value;
  }
  template <class Number, class Parse>
  Number number(const std::string& name, Number other, const Parse& parse) const {
    const std::string text = get(name);
    char* end = nullptr;
    const Number value = parse(text.c_str(), &end);
    return end == text.c_str() ? other : value;
  }

  std::string name_, description_;
  std::map<std::string, bool> flags_;
  std::map<std::string, std::string> options_;
  std::vector<Row> rows_;
  std::vector<std::string> positional_;
};

}  // namespace ck_tile::dispatcher::utils
