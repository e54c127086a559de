// What the two parts of the cuDNN that is none share: descriptors as they were filled.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace fake_cudnn {

struct Descriptor {
  int kind = 0;
  bool is_finished = false;
  std::int64_t number = 0;            // of an engine, its config, knobs and plan
  const Descriptor* graph = nullptr;  // of a config and its plan
  std::map<int, std::vector<char>> values;

  bool has(int attribute) const { return values.count(attribute) > 0; }
  template <class T>
  std::vector<T> get(int attribute) const {
    const std::vector<char>& bytes = values.at(attribute);
    std::vector<T> all(bytes.size() / sizeof(T));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }
  std::int64_t one(int attribute) const { return get<std::int64_t>(attribute).at(0); }
  const Descriptor& part(int attribute) const { return *get<const Descriptor*>(attribute).at(0); }
};

// The pointer that a pack has for a tensor; null: none.
inline void* pointer_of(const Descriptor& tensor, const Descriptor& pack) {
  const auto ids = pack.get<std::int64_t>(1000);
  const auto pointers = pack.get<void*>(1001);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == tensor.one(906)) return pointers[i];
  }
  return nullptr;
}

// Products, pointwise operations and reductions, one after the other; see fake_cudnn_fusion.cc.
void compute_fusion(const std::vector<const Descriptor*>& operations, const Descriptor& pack);

}  // namespace fake_cudnn
