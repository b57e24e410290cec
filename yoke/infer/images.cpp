// Images in files, folders and tar shards as samples.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"
#include "yoke/infer/source.h"
#include "yoke/train/data/tar_shards.h"

namespace yoke::infer {
namespace {

namespace fs = std::filesystem;

bool is_image(std::string_view name) {
  const auto lower = lower_case(name);
  return lower.ends_with(".jpg") || lower.ends_with(".jpeg") || lower.ends_with(".png");
}

class ImageReader : public Reader {
 public:
  explicit ImageReader(const train::ImageTransform& transform) : decoder_(transform) {}
  bool has_names() const override { return true; }
  std::string describe() const override {
    const auto& transform = decoder_.transform();
    return fmt::format("{} as [3, {}, {}]", counted(size(), "image"), transform.height, transform.width);
  }
  Inputs batch(const train::BatchRequest& request) const override {
    auto images = decoder_.empty(request);
    const auto num_rows = request.for_each([&](int64_t row, int64_t sample, train::SampleRandom& random) {
      const auto bytes = read(sample);
      decoder_.decode(std::as_bytes(std::span(bytes)), name(sample), random, images, row);
    });
    return {{"images", images.narrow(0, 0, num_rows)}};
  }

 protected:
  virtual std::string read(int64_t sample) const = 0;

 private:
  train::ImageDecoder decoder_;
};

class ImageFiles : public ImageReader {
 public:
  ImageFiles(fs::path root, std::vector<std::string> names, const train::ImageTransform& transform)
      : ImageReader(transform), root_(std::move(root)), names_(std::move(names)) {}
  int64_t size() const override { return std::ssize(names_); }
  std::string name(int64_t sample) const override { return names_[static_cast<size_t>(sample)]; }

 protected:
  std::string read(int64_t sample) const override { return read_file(root_ / name(sample)); }

 private:
  fs::path root_;
  std::vector<std::string> names_;  ///< Below the root.
};

class ImageShards : public ImageReader {
 public:
  ImageShards(const std::vector<fs::path>& shards, const train::ImageTransform& transform)
      : ImageReader(transform), shards_(shards) {}
  int64_t size() const override { return shards_.size(); }
  std::string name(int64_t sample) const override { return shards_.name(sample); }

 protected:
  std::string read(int64_t sample) const override {
    for (auto& [extension, bytes] : shards_.sample(sample).files) {
      if (is_image("." + extension)) return bytes;
    }
    throw Error(ErrorCode::kDataLoss, "{} has no image: none of its files is jpg, jpeg or png", name(sample));
  }

 private:
  train::TarShards shards_;
};

std::vector<double> numbers_of(std::string_view text) {
  std::vector<double> numbers;
  for (const auto word : split(text, ',')) {
    const auto number = parse_real(word);
    if (number) numbers.push_back(*number);
    if (!number) return {};
  }
  return numbers;
}

}  // namespace

train::Normalization normalization_of(const std::string& text) {
  if (text == "imagenet") return train::imagenet_normalization();
  if (text == "none") return {{0.0}, {1.0}};
  const auto slash = text.find('/');
  const auto mean = numbers_of(text.substr(0, slash));
  const auto deviation = slash == text.npos ? std::vector<double>() : numbers_of(text.substr(slash + 1));
  const bool is_sized = (mean.size() == 1 || mean.size() == 3) && deviation.size() == mean.size();
  if (!is_sized || std::ranges::any_of(deviation, [](double value) { return value <= 0; })) {
    throw Error(ErrorCode::kInvalidArgument,
                "--normalize {}: give imagenet, none, or MEAN/DEVIATION with one or three numbers each, such as "
                "0.5/0.25 or 0.49,0.48,0.45/0.25,0.24,0.26",
                printable(text));
  }
  return {mean, deviation};
}

std::shared_ptr<const Reader> open_images(const fs::path& path, const train::ImageTransform& transform) {
  if (!fs::is_directory(path)) {
    if (path.extension() == ".tar") return std::make_shared<ImageShards>(std::vector{path}, transform);
    return std::make_shared<ImageFiles>(path.parent_path(), std::vector{path.filename().string()}, transform);
  }
  std::vector<fs::path> shards;
  std::vector<std::string> names;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(path, fs::directory_options::follow_directory_symlink)) {
      const auto name = entry.path().lexically_relative(path).string();
      if (entry.path().filename().string().starts_with('.')) continue;  // what macOS leaves beside files
      if (is_image(name)) names.push_back(name);
      if (name.ends_with(".tar")) shards.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw system_error(error.code().value(), "reading " + printable(error.path1().string()));
  }
  std::ranges::sort(names);
  std::ranges::sort(shards);
  if (names.empty() && shards.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "{} has no image (.jpg, .jpeg, .png) and no tar shard (.tar)",
                printable(path.string()));
  }
  if (names.empty()) return std::make_shared<ImageShards>(shards, transform);
  return std::make_shared<ImageFiles>(path, std::move(names), transform);
}

}  // namespace yoke::infer
