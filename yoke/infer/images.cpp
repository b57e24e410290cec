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
  ImageReader(const train::ImageTransform& transform, std::vector<std::string> left_out)
      : decoder_(decoding_whole(transform)), left_out_(std::move(left_out)) {}
  bool has_names() const override { return true; }
  const std::vector<std::string>& left_out() const override { return left_out_; }
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
  /// The logits of shrunk photos differ in the second digit.
  static train::ImageTransform decoding_whole(train::ImageTransform transform) {
    transform.shrink_on_decode = false;
    return transform;
  }

  train::ImageDecoder decoder_;
  std::vector<std::string> left_out_;
};

class ImageFiles : public ImageReader {
 public:
  ImageFiles(fs::path root, std::vector<std::string> names, const train::ImageTransform& transform,
             std::vector<std::string> left_out = {})
      : ImageReader(transform, std::move(left_out)), root_(std::move(root)), names_(std::move(names)) {}
  int64_t size() const override { return std::ssize(names_); }
  std::vector<fs::path> files() const override {
    std::vector<fs::path> files;
    for (const auto& name : names_) files.push_back(root_ / name);
    return files;
  }
  std::string name(int64_t sample) const override { return names_[static_cast<size_t>(sample)]; }

 protected:
  std::string read(int64_t sample) const override { return read_file(root_ / name(sample)); }

 private:
  fs::path root_;
  std::vector<std::string> names_;  ///< Below the root.
};

class ImageShards : public ImageReader {
 public:
  ImageShards(const std::vector<fs::path>& paths, const train::ImageTransform& transform,
              std::vector<std::string> left_out = {})
      : ImageReader(transform, std::move(left_out)), paths_(paths), shards_(paths) {}
  int64_t size() const override { return shards_.size(); }
  std::vector<fs::path> files() const override { return paths_; }
  std::string name(int64_t sample) const override { return shards_.name(sample); }

 protected:
  std::string read(int64_t sample) const override {
    auto files = shards_.sample(sample).files;
    std::erase_if(files, [](const auto& file) { return !is_image("." + file.first); });
    if (files.empty()) {
      throw Error(ErrorCode::kDataLoss, "{} has no image: none of its files is jpg, jpeg or png", name(sample));
    }
    if (files.size() > 1) {
      throw Error(ErrorCode::kDataLoss,
                  "{} has {} images, such as {}.{} and {}.{}, and a sample has one: the key of a sample ends at the "
                  "first dot of a file's name, as in WebDataset; give each image a key of its own",
                  name(sample), files.size(), name(sample), files[0].first, name(sample), files[1].first);
    }
    return std::move(files[0].second);
  }

 private:
  std::vector<fs::path> paths_;
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
  std::vector<std::string> shards, names, left_out;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(path, fs::directory_options::follow_directory_symlink)) {
      const auto name = entry.path().lexically_relative(path).string();
      if (entry.path().filename().string().starts_with('.')) continue;  // what macOS leaves beside files
      if (entry.is_directory()) continue;
      (is_image(name) ? names : name.ends_with(".tar") ? shards : left_out).push_back(name);
    }
  } catch (const fs::filesystem_error& error) {
    throw system_error(error.code().value(), "reading " + printable(error.path1().string()));
  }
  if (!names.empty()) left_out.insert(left_out.end(), shards.begin(), shards.end());
  for (auto* list : {&names, &shards, &left_out}) std::ranges::sort(*list);
  if (names.empty() && shards.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "{} has no image (.jpg, .jpeg, .png) and no tar shard (.tar)",
                printable(path.string()));
  }
  if (!names.empty()) return std::make_shared<ImageFiles>(path, std::move(names), transform, std::move(left_out));
  std::vector<fs::path> paths;
  for (const auto& name : shards) paths.push_back(path / name);
  return std::make_shared<ImageShards>(paths, transform, std::move(left_out));
}

}  // namespace yoke::infer
