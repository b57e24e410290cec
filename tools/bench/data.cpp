#include "tools/bench/data.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/train/data/idx.h"
#include "yoke/train/data/tar_shards.h"
#include "yoke/train/data/token_files.h"
#include "yoke/train/image/cifar.h"
#include "yoke/train/image/image_folder.h"

namespace yoke::exercise {
namespace {

namespace fs = std::filesystem;

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool any_ends_with(const std::vector<std::string>& names, std::string_view end) {
  return std::ranges::any_of(names, [&](const std::string& name) { return name.ends_with(end); });
}

}  // namespace

DataKind kind_of_folder(const std::string& folder, const std::vector<std::string>& files,
                        const std::vector<std::string>& folders) {
  if (has(files, "data_batch_1.bin") || has(folders, "cifar-10-batches-bin")) return DataKind::kCifar10;
  if (has(files, "fine_label_names.txt") || has(folders, "cifar-100-binary")) return DataKind::kCifar100;
  for (const auto* name : {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"}) {
    if (has(files, name)) return DataKind::kIdx;
  }
  if (any_ends_with(files, ".tar")) return DataKind::kTarShards;
  if (!folders.empty()) return DataKind::kImageFolder;
  if (any_ends_with(files, ".bin")) return DataKind::kTokens;
  throw Error(ErrorCode::kInvalidArgument,
              "{} {}; --data takes a folder with a folder of images for each class, or with tar shards, CIFAR's binary "
              "files, MNIST's IDX files, or files of tokens (.bin, uint16)",
              printable(folder), files.empty() ? "is empty" : "holds nothing that yoke reads");
}

namespace {

/// Presents the sequences of token files as batches of data and targets.
struct TokenSource {
  train::TokenFiles files;

  int64_t size() const { return files.size(); }
  train::Batch batch(const train::BatchRequest& request) const {
    auto tokens = files.batch(request);
    return {tokens.data, tokens.target};
  }
};

/// Presents the images in tar shards as batches. The target is the number in an image's .cls file.
struct ShardSource {
  train::TarShards shards;
  train::ImageDecoder decoder;

  int64_t size() const { return shards.size(); }
  train::Batch batch(const train::BatchRequest& request) const {
    auto data = decoder.empty(request);
    auto target = request.empty({request.size()}, at::kLong);
    const auto num_rows = request.for_each([&](int64_t row, int64_t index, train::SampleRandom& random) {
      const auto sample = shards.sample(index);
      decoder.decode(std::as_bytes(std::span(image_of(sample))), sample.key, random, data, row);
      target.mutable_data_ptr<int64_t>()[row] = class_of(sample);
    });
    return {data.narrow(0, 0, num_rows), target.narrow(0, 0, num_rows)};
  }

 private:
  static const std::string& image_of(const train::TarSample& sample) {
    for (const auto& [extension, bytes] : sample.files) {
      if (extension == "jpg" || extension == "jpeg" || extension == "png") return bytes;
    }
    throw Error(ErrorCode::kDataLoss, "sample {} of the shards has no image (.jpg, .jpeg or .png)",
                printable(sample.key));
  }
  static int64_t class_of(const train::TarSample& sample) {
    for (const auto& [extension, bytes] : sample.files) {
      if (extension != "cls") continue;
      const auto words = words_of(std::string_view(bytes).substr(0, bytes.find('\n')));
      const auto number = words.size() == 1 ? parse_int(words[0]) : std::nullopt;
      if (number && *number >= 0 && *number < kNumClasses) return *number;
      throw Error(ErrorCode::kDataLoss,
                  "sample {} of the shards has '{}' in its file .cls, which is not a class from 0 "
                  "to {}",
                  printable(sample.key), fit(printable(bytes), 40), kNumClasses - 1);
    }
    return 0;  // shards without classes measure the loader as well
  }

 public:
  static constexpr int64_t kNumClasses = 1000;
};

template <class Source>
DataSet data_set(Source source, std::string description, const NetworkOptions& network,
                 std::optional<train::Normalization> normalization = {}) {
  int64_t num_samples = 0;
  if constexpr (requires { source.size(); }) {
    num_samples = source.size();
  } else {
    num_samples = source.data.size(0);
  }
  return {.description = fmt::format("{} {}", num_samples, description),
          .num_samples = num_samples,
          .network = network,
          .open = [source = std::move(source), normalization](const FeedOptions& options) -> std::unique_ptr<Feed> {
            return std::make_unique<LoaderFeed<Source>>(source, options, normalization);
          }};
}

DataSet images_in_memory(const train::Samples& samples, const std::string& description, int64_t num_classes,
                         const train::Normalization& normalization) {
  return data_set(samples, description,
                  {.sample_sizes = samples.data.sizes().slice(1).vec(), .num_classes = num_classes}, normalization);
}

/// Returns the usual transform of a training on photographs.
train::ImageTransform training_transform() {
  return {.random_crop = train::RandomResizedCrop{},
          .flip_probability = 0.5,
          .normalization = train::imagenet_normalization()};
}

DataSet open_tokens(const std::vector<fs::path>& paths, const std::string& shown_path) {
  const train::TokenOptions options{.sequence_length = 256};
  return data_set(TokenSource{train::TokenFiles(paths, options)},
                  fmt::format("sequences of 256 tokens of {}", shown_path),
                  {.sample_sizes = {options.sequence_length}, .has_tokens = true});
}

DataSet open_shards(const std::vector<fs::path>& paths, const std::string& shown_path) {
  const auto transform = training_transform();
  return data_set(ShardSource{train::TarShards(paths), train::ImageDecoder(transform)},
                  fmt::format("images of {}", shown_path),
                  {.sample_sizes = {3, transform.height, transform.width}, .num_classes = ShardSource::kNumClasses});
}

DataSet fashion_mnist_or_random() {
  const train::Normalization normalization{{0.2860}, {0.3530}};
  std::error_code ignored;
  if (fs::exists(train::kFashionMnistDir, ignored)) {
    return images_in_memory(train::read_fashion_mnist().train, "images of Fashion-MNIST", 10, normalization);
  }
  const auto bytes = at::TensorOptions().dtype(at::kByte), numbers = at::TensorOptions().dtype(at::kLong);
  auto set = images_in_memory({at::randint(256, {60'000, 1, 28, 28}, bytes), at::randint(10, {60'000}, numbers)},
                              "random images of 28 x 28", 10, normalization);
  set.note =
      "Fashion-MNIST is not installed (Debian's package dataset-fashion-mnist): random images in its shape stand in";
  return set;
}

DataSet open_folder(const fs::path& folder, const std::string& shown_path) {
  std::vector<std::string> files, folders;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    (entry->is_directory(ignored) ? folders : files).push_back(entry->path().filename().string());
  }
  if (error) throw system_error(error.value(), "reading " + shown_path);
  std::ranges::sort(files);
  const auto paths_with = [&](std::string_view end) {
    std::vector<fs::path> paths;
    for (const auto& file : files) {
      if (file.ends_with(end)) paths.push_back(folder / file);
    }
    return paths;
  };
  const train::Normalization half{{0.5}, {0.25}};
  switch (kind_of_folder(folder.string(), files, folders)) {
    case DataKind::kCifar10:
      return images_in_memory(train::read_cifar10(folder).train, "images of " + shown_path, 10, half);
    case DataKind::kCifar100:
      return images_in_memory(train::read_cifar100(folder).train, "images of " + shown_path, 100, half);
    case DataKind::kIdx:
      return images_in_memory(train::read_fashion_mnist(folder).train, "images of " + shown_path, 10, half);
    case DataKind::kTarShards: return open_shards(paths_with(".tar"), shown_path);
    case DataKind::kTokens: return open_tokens(paths_with(".bin"), shown_path);
    case DataKind::kImageFolder: break;
  }
  const auto transform = training_transform();
  train::ImageFolder images(folder, {.transform = transform});
  const auto num_classes = std::ssize(images.classes());
  return data_set(std::move(images), fmt::format("images in {} classes of {}", num_classes, shown_path),
                  {.sample_sizes = {3, transform.height, transform.width}, .num_classes = num_classes});
}

}  // namespace

DataSet open_data(const std::string& path) {
  if (path.empty()) return fashion_mnist_or_random();
  const auto shown_path = printable(path);
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) throw system_error(error ? error.value() : ENOENT, "reading " + shown_path);
  if (fs::is_directory(status)) return open_folder(path, shown_path);
  if (path.ends_with(".tar")) return open_shards({path}, shown_path);
  if (path.ends_with(".bin")) return open_tokens({path}, shown_path);
  throw Error(ErrorCode::kInvalidArgument, "{} is a file; --data takes a folder, a tar shard (.tar) or tokens (.bin)",
              shown_path);
}

}  // namespace yoke::exercise
