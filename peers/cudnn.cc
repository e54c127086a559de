// cuDNN as a peer, with its own search on: all engines that its heuristics propose for a problem's
// graph are built and timed at the first call, and the fastest take part. The first choice of the
// heuristics, which is what one gets without a search, takes part too.
#include "peers/cudnn_conv.h"
#include "peers/cudnn_fmha.h"
#include "peers/cudnn_graph.h"

namespace tessera::peers {
namespace {

class CuDnn : public Peer {
 public:
  explicit CuDnn(std::shared_ptr<cudnn::Library> library) : library_(std::move(library)) {}

  std::string name() const override { return "cudnn"; }
  std::string version() const override { return library_->version(); }

  std::vector<PeerCall> calls(const Problem& problem, const Operands& pointers) const override {
    std::optional<cudnn::Graph> graph;
    if (const auto* conv = std::get_if<ConvProblem>(&problem)) {
      graph = cudnn::conv_graph(library_, *conv, std::get<ConvOperands>(pointers));
    }
    if (const auto* fmha = std::get_if<FmhaProblem>(&problem)) {
      graph = cudnn::fmha_graph(library_, *fmha, std::get<FmhaOperands>(pointers));
    }
    if (!graph) return {};
    return cudnn::calls_of(session(), std::move(*graph));
  }

 private:
  // Made at the first problem, when a GPU is present.
  std::shared_ptr<cudnn::Session> session() const {
    if (session_ == nullptr) session_ = cudnn::start_session(library_);
    return session_;
  }

  std::shared_ptr<cudnn::Library> library_;
  mutable std::shared_ptr<cudnn::Session> session_;
};

}  // namespace

std::unique_ptr<Peer> load_cudnn(int) {
  std::shared_ptr<cudnn::Library> library = cudnn::Library::load();
  if (library == nullptr) return nullptr;
  return std::make_unique<CuDnn>(std::move(library));
}

}  // namespace tessera::peers
