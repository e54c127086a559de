// A graph of cuDNN's operations, and the ways to compute it: the engines that the library's
// heuristics propose, and a search among them.
#pragma once

#include <deque>
#include <optional>

#include "peers/cudnn_api.h"
#include "peers/peers.h"

namespace tessera::peers::cudnn {

std::optional<DataType> data_type_of(DType dtype);

// How the elements of a tensor lie. Strides count elements.
struct Layout {
  DataType type = DataType::fp32;
  std::vector<std::int64_t> dims, strides;
};
// Without gaps, the last dimension running fastest.
Layout dense(DataType type, const std::vector<std::int64_t>& dims);

// Operations with their tensors, and the memory of those that are stored. It needs no device.
class Graph {
 public:
  explicit Graph(std::shared_ptr<const Library> library) : library_(std::move(library)) {}

  const Library& library() const { return *library_; }
  // Engines must not round fp32 to fewer bits.
  void require_fp32() { is_fp32_ = true; }
  bool is_fp32() const { return is_fp32_; }

  // A descriptor that lives as long as the graph, to be filled and finished.
  Descriptor make(Kind kind) { return parts_.emplace_back(library_->make(kind)); }
  // In the device's memory. `offsets` say where each batch begins; null: at the same distances.
  Descriptor stored(const Layout& layout, const void* memory, const Descriptor& offsets = nullptr);
  // Between two operations, never stored.
  Descriptor inner(const Layout& layout);
  // One number, which the graph keeps.
  Descriptor value(float number);
  Descriptor value(std::int32_t number);
  // Finishes the operation, which follows those it takes its tensors from.
  void add(const Descriptor& operation);
  // Keeps memory of tensors alive.
  void keep(std::shared_ptr<void> memory) { memory_.push_back(std::move(memory)); }

  const std::vector<Descriptor>& operations() const { return operations_; }
  const std::vector<std::int64_t>& ids() const { return ids_; }
  const std::vector<const void*>& pointers() const { return pointers_; }

 private:
  Descriptor tensor(const Layout& layout, std::int64_t alignment);
  Descriptor number(DataType type, std::uint32_t bits);

  std::shared_ptr<const Library> library_;
  bool is_fp32_ = false;
  std::int64_t tensors_ = 0;
  std::deque<std::uint32_t> numbers_;  // which stay where they are
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<Descriptor> parts_, operations_;
  std::vector<std::int64_t> ids_;  // of tensors with memory
  std::vector<const void*> pointers_;
};

// What all problems share on the device.
struct Session {
  std::shared_ptr<Library> library;
  runtime::Place place;
  runtime::DeviceBuffer workspace;

  // Gives the workspace at least so many bytes; it may then lie elsewhere.
  void reserve(std::int64_t bytes);
};
// Makes the library's handle; a GPU must be present.
std::shared_ptr<Session> start_session(std::shared_ptr<Library> library);

// The heuristics' first choice, and the fastest that a search at the first call finds.
std::vector<PeerCall> calls_of(std::shared_ptr<Session> session, Graph graph);

}  // namespace tessera::peers::cudnn
