#include "yoke/train/data/loader_position.h"

#include <cinttypes>
#include <cstdio>

#include "yoke/base/error.h"

namespace yoke::train {

std::string text_of(const LoaderPosition& position) {
  const auto from = position.first_item < 0 ? "" : fmt::format(" from item {}", position.first_item);
  return fmt::format("epoch {}{}, sample {}", position.epoch, from, position.sample);
}

void read_text(const std::string& name, const std::string& text, LoaderPosition& position) {
  LoaderPosition plain, of_stream, old;
  int64_t batch = 0;
  int end = 0;
  const auto is_read = [&](int count, int expected) {
    return count == expected && end == static_cast<int>(text.size());
  };
  if (is_read(std::sscanf(text.c_str(), "epoch %" SCNd64 ", sample %" SCNd64 "%n", &plain.epoch, &plain.sample, &end),
              2)) {
    position = plain;
  } else if (is_read(std::sscanf(text.c_str(), "epoch %" SCNd64 " from item %" SCNd64 ", sample %" SCNd64 "%n",
                                 &of_stream.epoch, &of_stream.first_item, &of_stream.sample, &end),
                     3)) {
    position = of_stream;
  } else if (is_read(std::sscanf(text.c_str(), "epoch %" SCNd64 ", batch %" SCNd64 " of %" SCNd64 " samples%n",
                                 &old.epoch, &batch, &old.samples_per_batch, &end),
                     3) &&
             !__builtin_mul_overflow(batch, old.samples_per_batch, &old.sample)) {
    position = old;
  } else {
    throw Error(ErrorCode::kDataLoss, "the checkpoint's '{}' is '{}', which is not a position of a loader", name, text);
  }
}

}  // namespace yoke::train
