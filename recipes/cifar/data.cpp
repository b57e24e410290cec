#include "recipes/cifar/data.h"

#include <algorithm>

#include "recipes/common/pictures.h"
#include "recipes/common/training.h"
#include "yoke/base/file.h"

namespace cifar {

using namespace yoke;

namespace {

constexpr int64_t kSide = 32, kPixels = kSide * kSide;
constexpr int64_t kShift = 4;

/// `count` pictures in CIFAR-10's format: the label, then the planes of the three colours. The numbers of the pictures
/// begin with `first`.
std::string draw(int64_t first, int64_t count) {
  std::string bytes;
  for (int64_t i = first; i < first + count; ++i) {
    const int64_t label = i % recipes::kNumShapes;
    const auto pixels = recipes::draw_picture(label, i, kSide);
    bytes.push_back(static_cast<char>(label));
    for (size_t channel = 0; channel < 3; ++channel) {
      for (size_t pixel = 0; pixel < kPixels; ++pixel) bytes.push_back(static_cast<char>(pixels[3 * pixel + channel]));
    }
  }
  return bytes;
}

}  // namespace

train::Cifar read_or_draw(const std::string& dir, const std::filesystem::path& folder, int64_t num_train,
                          int64_t num_test, dist::World& world) {
  const auto from = dir.empty() ? folder : std::filesystem::path(dir);
  const auto train_file = from / "train.bin", test_file = from / "test.bin";
  if (!dir.empty() && !std::filesystem::exists(train_file)) return train::read_cifar10(dir);
  if (dir.empty()) {
    recipes::on_rank_zero(world, [&] {
      std::filesystem::create_directories(folder);
      if (!std::filesystem::exists(train_file)) replace_file(train_file, draw(0, num_train));
      if (!std::filesystem::exists(test_file)) replace_file(test_file, draw(num_train, num_test));
    });
  }
  return {train::read_cifar10_file(train_file), train::read_cifar10_file(test_file)};
}

train::Normalization normalization() { return {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}}; }

Augmented::Augmented(train::Samples samples) : samples_(std::move(samples)) {
  const auto [mean, stddev] = normalization();
  for (size_t channel = 0; channel < 3; ++channel) {
    for (int byte = 0; byte < 256; ++byte) {
      values_[channel][byte] = static_cast<float>((byte / 255.0 - mean[channel]) / stddev[channel]);
    }
  }
}

train::Batch Augmented::batch(const train::BatchRequest& request) const {
  train::Batch batch{request.empty({request.size(), 3, kSide, kSide}, at::kFloat, at::MemoryFormat::ChannelsLast),
                     request.empty({request.size()}, at::kLong)};
  const auto* images = samples_.data.const_data_ptr<uint8_t>();
  const auto* targets = samples_.target.const_data_ptr<int64_t>();
  auto* to = batch.data.mutable_data_ptr<float>();
  auto* target = batch.target.mutable_data_ptr<int64_t>();
  request.for_each([&](int64_t row, int64_t sample, train::SampleRandom& random) {
    const int64_t down = random.below(2 * kShift + 1) - kShift, right = random.below(2 * kShift + 1) - kShift;
    const bool is_mirrored = random.chance(0.5);
    const auto* image = images + sample * 3 * kPixels;
    auto* out = to + row * 3 * kPixels;
    for (int64_t y = 0; y < kSide; ++y) {
      for (int64_t x = 0; x < kSide; ++x, out += 3) {
        const int64_t from_y = y - down, from_x = (is_mirrored ? kSide - 1 - x : x) - right;
        const bool is_there = from_y >= 0 && from_y < kSide && from_x >= 0 && from_x < kSide;
        for (int64_t channel = 0; channel < 3; ++channel) {
          out[channel] = is_there ? values_[channel][image[channel * kPixels + from_y * kSide + from_x]] : 0;
        }
      }
    }
    target[row] = targets[sample];
  });
  return batch;
}

}  // namespace cifar
