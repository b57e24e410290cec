// yoke/models/generate.h -- continues a text with a network that predicts the next token.
//
//     const auto more = models::generate([&](auto& tokens, auto& cache) { return gpt(tokens, &cache); },
//                                        tokenizer->encode("Once upon"), {.max_length = gpt->options().max_length});
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "yoke/models/gpt.h"

namespace yoke::models {

struct GenerateOptions {
  int64_t num_tokens = 100;    ///< New tokens at most.
  int64_t max_length = 0;      ///< Of the network. If the text grows longer, its last half is read again.
  int64_t num_allowed = 0;     ///< If above 0, tokens are below it: a network may have more than its tokenizer.
  double temperature = 1;      ///< Divides logits; 0 takes the most likely token each time.
  int64_t top_k = 0;           ///< If above 0, chooses among so many of the most likely tokens.
  double top_p = 1;            ///< Chooses among the fewest tokens that have at least this probability together.
  std::optional<int64_t> end;  ///< The token after which to stop; it is not returned.
  std::optional<at::Generator> generator;  ///< Default: the CPU's.
};

/// Returns the logits [1, length, vocabulary] for `tokens` [1, length] that follow those of `cache`.
using GptForward = std::function<at::Tensor(const at::Tensor& tokens, GptCache& cache)>;

/// Returns the tokens that follow `prompt`. Runs without gradients; the caller calls eval() before it.
/// Ranks    with a FullyShardedDataParallel, `forward` is collective: all ranks call this with the same arguments and
///          equal states of their generators.
/// Devices  `device` is that of the network. Choices are made on the CPU, so each token waits for the device.
/// Errors   kInvalidArgument: an empty prompt, or an option that is out of range.
/// Source   top-p: Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020.
std::vector<int64_t> generate(const GptForward& forward, std::vector<int64_t> prompt, const GenerateOptions& options,
                              at::Device device = at::kCPU);

/// Chooses one token by its logits [vocabulary], on the CPU.
int64_t choose_token(const at::Tensor& logits, const GenerateOptions& options);

}  // namespace yoke::models
