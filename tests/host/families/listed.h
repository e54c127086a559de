// What holds for the list of kernels of any family.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "tessera/families/family.h"

namespace tessera {

// The kernels are legal, and sorted by names that lead back to them. Each wish leaves out some of
// them, and not all.
inline void expect_listed(const Family& family, const Target& target,
                          std::initializer_list<Wish> wishes) {
  const std::vector<KernelSpec> specs = family.enumerate(target, {});
  ASSERT_GT(specs.size(), 100U);
  std::string last;
  for (const KernelSpec& spec : specs) {
    const std::string name = name_of(spec);
    EXPECT_LT(last, name);
    EXPECT_EQ(parse_name(name), spec);
    EXPECT_EQ(family.is_legal(spec, target).reason, "") << name;
    last = name;
  }
  for (const Wish& wish : wishes) {
    const std::vector<KernelSpec> some = family.enumerate(target, {&wish, 1});
    EXPECT_GT(some.size(), 0U) << wish.field;
    EXPECT_LT(some.size(), specs.size()) << wish.field;
  }
}

}  // namespace tessera
