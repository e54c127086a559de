// Layers of common networks as GEMM.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::gemm {

// A weight matrix: n outputs, k inputs. m is the number of tokens.
struct Projection {
  int n, k;
};

// From the published configurations of the models: query, key and value together, the output
// projection, gate and up together, down; the last rows are vocabularies.
inline constexpr auto kProjections = std::to_array<Projection>({
    // BERT-base and GPT-2, BERT-large, GPT-2 XL
    {2304, 768},
    {768, 768},
    {3072, 768},
    {768, 3072},
    {3072, 1024},
    {1024, 1024},
    {4096, 1024},
    {1024, 4096},
    {4800, 1600},
    {1600, 1600},
    {6400, 1600},
    {1600, 6400},
    // Llama 2 7B, Llama 3 8B and Mistral 7B, Llama 3 70B
    {12288, 4096},
    {22016, 4096},
    {4096, 11008},
    {6144, 4096},
    {4096, 4096},
    {28672, 4096},
    {4096, 14336},
    {10240, 8192},
    {8192, 8192},
    {57344, 8192},
    {8192, 28672},
    // Mistral NeMo 12B, Gemma 2 9B, Phi-3 mini
    {6144, 5120},
    {5120, 4096},
    {28672, 5120},
    {5120, 14336},
    {8192, 3584},
    {3584, 4096},
    {28672, 3584},
    {3584, 14336},
    {9216, 3072},
    {3072, 3072},
    {16384, 3072},
    {3072, 8192},
    // Qwen2.5 0.5B and 7B, an expert of Qwen3 30B
    {1152, 896},
    {896, 896},
    {9728, 896},
    {896, 4864},
    {4608, 3584},
    {3584, 3584},
    {37888, 3584},
    {3584, 18944},
    {1536, 2048},
    {2048, 768},
    // DeepSeek-V3: attention, an expert, the first layers
    {2112, 7168},
    {24576, 1536},
    {32768, 512},
    {7168, 16384},
    {4096, 7168},
    {7168, 2048},
    {36864, 7168},
    {7168, 18432},
    // vocabularies of GPT-2, BERT, Llama 3
    {50257, 768},
    {30522, 768},
    {128256, 4096},
});

inline constexpr auto kTokens = std::to_array<int>(
    {1,   2,   3,   4,   5,   6,   7,   8,   12,   16,   24,   32,   48,   64,   96,   100,
     128, 192, 256, 320, 384, 512, 640, 768, 1000, 1024, 1536, 2048, 3000, 4096, 6144, 8192});

// ViT-B, ViT-L and ViT-H; an image has 197, 257 or 577 patches.
inline constexpr auto kPatchProjections = std::to_array<Projection>({
    {2304, 768},
    {768, 768},
    {3072, 768},
    {768, 3072},
    {3072, 1024},
    {1024, 1024},
    {4096, 1024},
    {1024, 4096},
    {3840, 1280},
    {1280, 1280},
    {5120, 1280},
    {1280, 5120},
});
inline constexpr auto kPatches = std::to_array<int>({197, 257, 577});
inline constexpr auto kImages = std::to_array<int>({1, 2, 4, 8, 16, 32, 64});

// ResNet-50's convolutions: output pixels of an image, output channels, input channels x filter.
struct Convolution {
  int pixels, n, k;
};
inline constexpr auto kConvolutions = std::to_array<Convolution>({
    {12544, 64, 147}, {3136, 64, 64},   {3136, 64, 576},  {3136, 256, 64},  {3136, 64, 256},
    {784, 128, 256},  {784, 128, 1152}, {784, 512, 128},  {784, 128, 512},  {784, 512, 256},
    {196, 256, 512},  {196, 256, 2304}, {196, 1024, 256}, {196, 256, 1024}, {196, 1024, 512},
    {49, 512, 1024},  {49, 512, 4608},  {49, 2048, 512},  {49, 512, 2048},  {49, 2048, 1024},
    {1, 1000, 2048},
});

// Attention as two batched products, one batch a head: tokens x tokens x size and back.
struct Heads {
  int count, size;
};
inline constexpr auto kHeads = std::to_array<Heads>({{12, 64}, {16, 64}, {32, 128}, {8, 256}});
inline constexpr auto kLengths = std::to_array<int>({64, 100, 128, 197, 256, 384, 512, 1024, 2048});

}  // namespace tessera::gemm
