#include "yoke/train/image/cifar.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train {
namespace {

constexpr int64_t kImageBytes = 3 * 32 * 32;

struct CifarFormat {
  const char* folder;
  int64_t label_bytes;  // before each image; the last one is the target
  int64_t num_classes;
};

constexpr CifarFormat kCifar10{"cifar-10-batches-bin", 1, 10};
constexpr CifarFormat kCifar100{"cifar-100-binary", 2, 100};

// Copies the images of a file, each after its labels, to `samples` from row `first` on.
void copy_images(const std::filesystem::path& path, const std::string& bytes, const CifarFormat& format,
                 const Samples& samples, int64_t first) {
  const int64_t record_bytes = format.label_bytes + kImageBytes;
  const auto count = static_cast<int64_t>(bytes.size()) / record_bytes;
  auto* image = samples.data.mutable_data_ptr<uint8_t>() + first * kImageBytes;
  auto* target = samples.target.mutable_data_ptr<int64_t>() + first;
  for (int64_t i = 0; i < count; ++i, ++target, image += kImageBytes) {
    const char* record = bytes.data() + i * record_bytes;
    *target = static_cast<uint8_t>(record[format.label_bytes - 1]);
    if (*target >= format.num_classes) {
      throw Error(ErrorCode::kDataLoss, "{}: expected labels from 0 to {}, found {} for image {}", path.string(),
                  format.num_classes - 1, *target, i);
    }
    std::memcpy(image, record + format.label_bytes, kImageBytes);
  }
}

Samples make_samples(int64_t count) {
  return {at::empty({count, 3, 32, 32}, at::kByte), at::empty({count}, at::kLong)};
}

// Each file has `samples_per_file` images.
Samples read_files(const std::filesystem::path& dir, const std::vector<std::string>& names, int64_t samples_per_file,
                   const CifarFormat& format) {
  const auto samples = make_samples(samples_per_file * static_cast<int64_t>(names.size()));
  int64_t first = 0;
  for (const auto& name : names) {
    const auto path = dir / name;
    const std::string bytes = read_file(path);
    const int64_t record_bytes = format.label_bytes + kImageBytes;
    if (static_cast<int64_t>(bytes.size()) != samples_per_file * record_bytes) {
      throw Error(ErrorCode::kDataLoss, "{}: expected {} bytes, which are {} images with labels; found {}",
                  path.string(), samples_per_file * record_bytes, samples_per_file, bytes.size());
    }
    copy_images(path, bytes, format, samples, first);
    first += samples_per_file;
  }
  return samples;
}

std::filesystem::path folder_of(const std::filesystem::path& dir, const CifarFormat& format) {
  std::error_code unknown;  // ignored: reading the files reports the error
  return std::filesystem::is_directory(dir / format.folder, unknown) ? dir / format.folder : dir;
}

}  // namespace

Cifar read_cifar10(const std::filesystem::path& dir) {
  const auto folder = folder_of(dir, kCifar10);
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) names.push_back("data_batch_" + std::to_string(i) + ".bin");
  return {read_files(folder, names, 10000, kCifar10), read_files(folder, {"test_batch.bin"}, 10000, kCifar10)};
}

Cifar read_cifar100(const std::filesystem::path& dir) {
  const auto folder = folder_of(dir, kCifar100);
  return {read_files(folder, {"train.bin"}, 50000, kCifar100), read_files(folder, {"test.bin"}, 10000, kCifar100)};
}

Samples read_cifar10_file(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  const auto size = static_cast<int64_t>(bytes.size()), record_bytes = kCifar10.label_bytes + kImageBytes;
  if (size == 0 || size % record_bytes != 0) {
    throw Error(ErrorCode::kDataLoss, "{}: expected images of {} bytes with their labels; found {} bytes",
                path.string(), record_bytes, size);
  }
  const auto samples = make_samples(size / record_bytes);
  copy_images(path, bytes, kCifar10, samples, 0);
  return samples;
}

}  // namespace yoke::train
