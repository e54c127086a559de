// Named configurations of convolution kernels; grouped_conv_config.hpp includes this file.
#pragma once

#include "ck_tile/dispatcher/grouped_conv_config.hpp"

namespace ck_tile::dispatcher {

// T is the element's type.
namespace configs {

// k: bytes of the tile's third size.
template <class T>
GroupedConvAlgorithmInfo algorithm_of(int m, int n, int bytes, const BlockWarpConfig& warp,
                                      PipelineVersion pipeline) {
  GroupedConvAlgorithmInfo made;
  made.tile = {m, n, bytes / static_cast<int>(sizeof(T))};
  made.warp = warp, made.pipeline = pipeline;
  return made;
}

template <class T>
struct Memory : GroupedConvConfig {
  Memory() {
    algorithm = algorithm_of<T>(128, 32, 128, {4, 1, 1, 32, 32, 16}, PipelineVersion::MEMORY);
  }
};
template <class T>
struct CompV3_Small : GroupedConvConfig {
  CompV3_Small() {
    algorithm = algorithm_of<char>(16, 64, 64, {1, 4, 1, 16, 16, 32}, PipelineVersion::V3);
  }
};
template <class T>
struct CompV3_Medium : GroupedConvConfig {
  CompV3_Medium() {
    algorithm = algorithm_of<T>(128, 128, 128, {2, 2, 1, 16, 16, 32}, PipelineVersion::V3);
    algorithm.block_per_cu = 2;
  }
};
template <class T>
struct CompV3_Large : GroupedConvConfig {
  CompV3_Large() {
    algorithm = algorithm_of<T>(256, 256, 128, {2, 2, 1, 32, 32, 16}, PipelineVersion::V3);
  }
};
template <class T>
struct CompV4 : GroupedConvConfig {
  CompV4() {
    algorithm = algorithm_of<T>(256, 256, 64, {2, 2, 1, 32, 32, 16}, PipelineVersion::V4);
    algorithm.double_smem_buffer = true;
  }
};
template <class T>
struct CompV5 : GroupedConvConfig {
  CompV5() {
    algorithm = algorithm_of<T>(128, 128, 64, {1, 1, 2, 32, 32, 16}, PipelineVersion::V5);
    algorithm.num_wave_groups = 2;
  }
};
template <class T>
struct WMMA : GroupedConvConfig {
  WMMA() {
    algorithm = algorithm_of<T>(128, 128, 64, {4, 2, 1, 16, 16, 16}, PipelineVersion::V3);
    algorithm.block_per_cu = 2;
    arch.name = "gfx1100";
  }
};
template <class T>
struct CompV3_MergedGroups : GroupedConvConfig {
  CompV3_MergedGroups() {
    algorithm = algorithm_of<char>(16, 32, 32, {1, 2, 1, 16, 16, 32}, PipelineVersion::V3);
    algorithm.num_groups_to_merge = 2;
  }
};

}  // namespace configs

}  // namespace ck_tile::dispatcher
