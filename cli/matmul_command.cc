// tessera matmul: two .npy files in, one out.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "command.h"
#include "npy.h"
#include "tessera/commands/options.h"
#include "tessera/commands/work.h"

namespace tessera::cli {
namespace {

struct MatmulCommand {
  std::string a_path;
  std::string b_path;
  std::string output_path;
  std::string out_dtype;
  std::string target;
  RunOptions run;
};

std::string shape_text(const NpyArray& array) {
  return fmt::format("({})", fmt::join(array.shape, ", "));
}

// A matrix, or a stack of them. A stack in Fortran order has no batch stride, so it is copied to C
// order.
NpyArray read_matrix(const std::string& path) {
  NpyArray array = read_npy(path);
  if (array.shape.size() != 2 && array.shape.size() != 3) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("matmul: {} must hold a matrix or a stack of matrices, got shape {}",
                            path, shape_text(array)));
  }
  if (array.shape.size() == 3 && array.column_major) return to_row_major(array);
  return array;
}

GemmLayout layout_of(bool a_column_major, bool b_column_major) {
  if (a_column_major) return b_column_major ? GemmLayout::ccr : GemmLayout::crr;
  return b_column_major ? GemmLayout::rcr : GemmLayout::rrr;
}

std::int64_t batch_of(const NpyArray& array) {
  return array.shape.size() == 3 ? array.shape.front() : 1;
}

GemmProblem problem_of(const MatmulCommand& command, const NpyArray& a, const NpyArray& b) {
  if (a.dtype != b.dtype) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("matmul: both files must hold one element type, got {} in {} and {} in "
                    "{}",
                    to_string(a.dtype), command.a_path, to_string(b.dtype), command.b_path));
  }
  const std::int64_t m = a.shape[a.shape.size() - 2];
  const std::int64_t k = a.shape.back();
  const std::int64_t b_k = b.shape[b.shape.size() - 2];
  const std::int64_t batch_a = batch_of(a);
  const std::int64_t batch_b = batch_of(b);
  const bool batches_fit = batch_a == batch_b || a.shape.size() == 2 || b.shape.size() == 2;
  if (k != b_k || !batches_fit) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("matmul: A's columns must be as many as B's rows, and stacks equally "
                            "high, got shapes {} and {}",
                            shape_text(a), shape_text(b)));
  }
  GemmProblem problem =
      gemm_problem(a.dtype, layout_of(a.column_major, b.column_major), m, b.shape.back(), k);
  if (!command.out_dtype.empty()) problem.out = problem.d = parse_dtype(command.out_dtype);
  problem.batch = a.shape.size() == 3 ? batch_a : batch_b;
  if (a.shape.size() == 2 && problem.batch != 1) problem.batch_stride_a = 0;
  if (b.shape.size() == 2 && problem.batch != 1) problem.batch_stride_b = 0;
  return problem;
}

// A copy of a matrix in memory that the kernel can read.
runtime::DeviceBuffer send(const runtime::Place& place, const runtime::AlignedBuffer& matrix) {
  runtime::DeviceBuffer buffer(place, matrix.size());
  place.backend->copy_to_device(buffer.data(), matrix.data(), matrix.size(), place.options);
  return buffer;
}

void multiply(Dispatcher& dispatcher, const GemmProblem& problem, const NpyArray& a,
              const NpyArray& b, const runtime::AlignedBuffer& out, const RunOptions& options) {
  dispatcher.kernel_for(problem, options);  // throws when this machine cannot run the target
  const runtime::Place place{&runtime::backend_for(dispatcher.target()), options.launch};
  GemmOperands operands{.a = a.data.data(), .b = b.data.data(), .out = out.data()};
  if (place.backend->uses_host_memory()) {
    dispatcher.run(problem, operands, options);
    return;
  }
  const runtime::DeviceBuffer sent_a = send(place, a.data), sent_b = send(place, b.data);
  const runtime::DeviceBuffer result(place, out.size());
  operands = {.a = sent_a.data(), .b = sent_b.data(), .out = result.data()};
  dispatcher.run(problem, operands, options);
  place.backend->copy_to_host(out.data(), result.data(), out.size(), place.options);
}

int matmul(const MatmulCommand& command, const Console& console) {
  const NpyArray a = read_matrix(command.a_path);
  const NpyArray b = read_matrix(command.b_path);
  const GemmProblem problem = problem_of(command, a, b);
  family_of(Op::gemm).validate(problem);
  std::vector<std::int64_t> shape = {problem.m, problem.n};
  if (a.shape.size() == 3 || b.shape.size() == 3) shape.insert(shape.begin(), problem.batch);

  const std::int64_t elements = problem.batch * problem.m * problem.n;
  const runtime::AlignedBuffer out(static_cast<std::size_t>(elements * size_of(problem.out)));
  Dispatcher dispatcher({.target = command.target});
  multiply(dispatcher, problem, a, b, out, command.run);
  write_npy(command.output_path, problem.out, shape, out.data());

  const ReadyKernel& kernel = dispatcher.kernel_for(problem, command.run);
  if (console.json) {
    console.print_json({{"problem", to_string(Problem(problem))},
                        {"kernel", kernel.name},
                        {"output", command.output_path},
                        {"shape", shape},
                        {"dtype", to_string(problem.out)}});
  } else {
    console.write_out("{}: ({}) of {}, by {}\n", command.output_path, fmt::join(shape, ", "),
                      to_string(problem.out), kernel.name);
  }
  return 0;
}

}  // namespace

Action declare_matmul(CLI::App& app) {
  auto command = std::make_shared<MatmulCommand>();
  app.add_option("a", command->a_path, "A: (m, k) or (batch, m, k), .npy")->required();
  app.add_option("b", command->b_path, "B: (k, n) or (batch, k, n), .npy")->required();
  app.add_option("-o,--output", command->output_path, "Where the product goes, .npy")->required();
  app.add_option("--out-dtype", command->out_dtype, "The product's element type");
  add_target_option(app, command->target);
  add_threads_option(app, command->run.launch.threads);
  add_device_option(app, command->run.launch.device);
  app.add_option("--force", command->run.force, "This kernel, or an error that says why not");
  app.add_flag("--verify", command->run.verify, "Compare with the fp64 reference");
  return [command](const Console& console) { return matmul(*command, console); };
}

}  // namespace tessera::cli
