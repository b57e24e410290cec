#include "yoke/train/data/source.h"

#include <fmt/format.h>

#include <string>

#include "yoke/base/error.h"
#include "yoke/dist/error_text.h"

namespace yoke::train {

int64_t BatchRequest::for_each(
    const std::function<void(int64_t row, int64_t sample, SampleRandom& random)>& make) const {
  int64_t row = 0;
  std::string last_error;
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t sample = samples_[static_cast<size_t>(i)];
    auto numbers = random(i);
    try {
      make(row, sample, numbers);
    } catch (const std::exception& error) {
      if (!options_.on_bad_sample) throw;
      options_.on_bad_sample(sample, error);
      last_error = fmt::format("sample {}: {}", sample, dist::error_text(error));
      continue;
    }
    ++row;
  }
  if (row == 0 && size() > 0) {
    throw Error(ErrorCode::kDataLoss, "loader: none of the {} samples of a batch can be read; {}", size(), last_error);
  }
  return row;
}

}  // namespace yoke::train
