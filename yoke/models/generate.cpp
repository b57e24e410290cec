#include "yoke/models/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "yoke/base/error.h"

namespace yoke::models {
namespace {

void check_generate(const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  const auto refuse = [](const char* what) { throw Error(ErrorCode::kInvalidArgument, "generate: {}", what); };
  if (prompt.empty()) refuse("the prompt has no tokens; give at least one");
  if (options.max_length < 2) refuse("max_length is the network's, and at least 2");
  if (options.num_tokens < 0) refuse("num_tokens is negative");
  if (!(options.temperature >= 0)) refuse("the temperature is negative; 0 takes the most likely token");
  if (options.top_k < 0) refuse("top_k is negative; 0 allows every token");
  if (!(options.top_p > 0 && options.top_p <= 1)) refuse("top_p is outside (0, 1]");
}

}  // namespace

int64_t choose_token(const at::Tensor& logits, const GenerateOptions& options) {
  if (options.temperature == 0) return logits.argmax().item<int64_t>();
  auto values = logits.to(at::kFloat) / options.temperature;
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (options.top_k > 0 && options.top_k < values.size(0)) {
    const auto smallest = std::get<0>(at::topk(values, options.top_k)).select(0, options.top_k - 1);
    values = values.masked_fill(values < smallest, kNever);
  }
  if (options.top_p < 1) {
    const auto [sorted, order] = at::sort(values, /*dim=*/0, /*descending=*/true);
    const auto share = at::softmax(sorted, 0);
    const auto dropped = share.cumsum(0) - share >= options.top_p;  // what is more likely has that probability already
    values = values.scatter(0, order, sorted.masked_fill(dropped, kNever));
  }
  return at::multinomial(at::softmax(values, 0), 1, false, options.generator).item<int64_t>();
}

std::vector<int64_t> generate(const GptForward& forward, std::vector<int64_t> prompt, const GenerateOptions& options,
                              at::Device device) {
  check_generate(prompt, options);
  auto& text = prompt;  // grows
  const at::NoGradGuard no_grad;
  std::vector<int64_t> result;
  GptCache cache;
  while (static_cast<int64_t>(result.size()) < options.num_tokens) {
    auto num_new = result.empty() ? static_cast<int64_t>(text.size()) : 1;
    if (cache.length + num_new > options.max_length) {
      cache = {};
      num_new = std::min<int64_t>(static_cast<int64_t>(text.size()), std::max<int64_t>(1, options.max_length / 2));
    }
    const std::vector<int64_t> tokens(text.end() - num_new, text.end());
    const auto logits = forward(at::tensor(tokens, at::kLong).unsqueeze(0).to(device), cache);
    auto last = logits.select(0, 0).select(0, -1);
    if (options.num_allowed > 0) last = last.slice(0, 0, options.num_allowed);
    const auto token = choose_token(last.cpu(), options);
    if (token == options.end) break;
    result.push_back(token);
    text.push_back(token);
  }
  return result;
}

}  // namespace yoke::models
