#include "recipes/gpt/text_windows.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace gpt {

using namespace yoke;

at::Tensor read_tokens(const std::filesystem::path& path, const models::Tokenizer& tokenizer, int64_t length) {
  const auto tokens = tokenizer.encode(read_file(path));
  const auto count = static_cast<int64_t>(tokens.size());
  if (count < length + 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "{} has {} tokens, and this preset needs at least {}; use a longer text or a smaller preset",
                path.string(), count, length + 1);
  }
  auto result = at::empty({count}, at::kLong);
  std::copy(tokens.begin(), tokens.end(), result.mutable_data_ptr<int64_t>());
  return result;
}

int64_t TextWindows::size() const {
  return options_.num_random > 0 ? options_.num_random : (tokens_.size(0) - 1) / options_.length;
}

train::Batch TextWindows::batch(const train::BatchRequest& request) const {
  const auto length = options_.length;
  auto data = request.empty({request.size(), length}, at::kLong);
  auto target = request.empty({request.size(), length}, at::kLong);
  const auto* tokens = tokens_.const_data_ptr<int64_t>();
  request.for_each([&](int64_t row, int64_t sample, train::SampleRandom& random) {
    const auto first = options_.num_random > 0 ? random.below(tokens_.size(0) - length) : sample * length;
    std::copy_n(tokens + first, length, data.mutable_data_ptr<int64_t>() + row * length);
    std::copy_n(tokens + first + 1, length, target.mutable_data_ptr<int64_t>() + row * length);
  });
  return {data, target};
}

}  // namespace gpt
