#include "recipes/images/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <sstream>

#include "recipes/common/csv.h"
#include "recipes/common/pictures.h"
#include "recipes/common/training.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/png.h"
#include "yoke/train/data/sampler.h"
#include "yoke/train/data/tar_shards.h"
#include "yoke/train/image/image_folder.h"

namespace images {

using namespace yoke;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kShapesToTest = 500;

std::optional<int64_t> number_of(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

class FolderListing : public Listing {
 public:
  explicit FolderListing(const fs::path& root) : folder_(root) {}
  int64_t size() const override { return folder_.size(); }
  const std::vector<std::string>& classes() const override { return folder_.classes(); }
  Picture read(int64_t index) const override {
    const auto path = folder_.path(index);
    return {path.string(), read_file(path), folder_.target(index)};
  }

 private:
  train::ImageFolder folder_;
};

class TarListing : public Listing {
 public:
  TarListing(const fs::path& folder, const std::vector<fs::path>& shards) : shards_(shards) {
    const auto names = folder / "classes.txt";
    if (!fs::exists(names)) return;
    std::istringstream lines(read_file(names));
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) classes_.push_back(line);
    }
  }
  int64_t size() const override { return shards_.size(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  Picture read(int64_t index) const override {
    auto sample = shards_.sample(index);
    const auto target = number_of(sample.at("cls"));
    if (!target) throw Error(ErrorCode::kDataLoss, "{}.cls does not have the number of a class", sample.key);
    for (auto& [extension, bytes] : sample.files) {
      if (extension == "jpg" || extension == "jpeg" || extension == "png") {
        return {sample.key + "." + extension, std::move(bytes), *target};
      }
    }
    throw Error(ErrorCode::kDataLoss, "{} has no picture: none of its files is jpg, jpeg or png", sample.key);
  }

 private:
  train::TarShards shards_;
  std::vector<std::string> classes_;
};

class CsvListing : public Listing {
 public:
  explicit CsvListing(const fs::path& file) {
    std::vector<std::string> labels;
    for (const auto& row : recipes::read_csv(file, {"path", "label"})) {
      paths_.push_back(file.parent_path() / row[0]);
      labels.push_back(row[1]);
    }
    classes_ = recipes::number_classes(labels);
  }
  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  const std::vector<std::string>& classes() const override { return classes_.names; }
  Picture read(int64_t index) const override {
    const auto& path = paths_[static_cast<size_t>(index)];
    return {path.string(), read_file(path), classes_.targets[static_cast<size_t>(index)]};
  }

 private:
  std::vector<fs::path> paths_;
  recipes::Classes classes_;
};

std::vector<fs::path> shards_in(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> shards;
  if (!fs::is_directory(folder)) return shards;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".tar")) shards.push_back(entry.path());
  }
  std::ranges::sort(shards);
  return shards;
}

/// The set called `name` in `root`; null if there is none.
std::shared_ptr<const Listing> find_set(const fs::path& root, const std::string& name) {
  if (fs::is_directory(root / name)) {
    const auto shards = shards_in(root / name, "");
    if (!shards.empty()) return std::make_shared<TarListing>(root / name, shards);
    return std::make_shared<FolderListing>(root / name);
  }
  if (const auto file = root / (name + ".csv"); fs::exists(file)) return std::make_shared<CsvListing>(file);
  if (const auto shards = shards_in(root, name); !shards.empty()) return std::make_shared<TarListing>(root, shards);
  return nullptr;
}

std::shared_ptr<const Listing> whole_set(const fs::path& root) {
  if (!fs::exists(root)) {
    throw Error(ErrorCode::kNotFound, "--data: there is no {}; see `yoke train images --help`", root.string());
  }
  if (root.extension() == ".csv") return std::make_shared<CsvListing>(root);
  if (root.extension() == ".tar") return std::make_shared<TarListing>(root.parent_path(), std::vector{root});
  if (const auto shards = shards_in(root, ""); !shards.empty()) return std::make_shared<TarListing>(root, shards);
  return std::make_shared<FolderListing>(root);
}

std::vector<int64_t> all_of(const Listing& listing) {
  std::vector<int64_t> samples(static_cast<size_t>(listing.size()));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

int64_t count_classes(const fs::path& root, const std::vector<std::string>& classes, int64_t given) {
  const auto found = static_cast<int64_t>(classes.size());
  if (given == 0 && found == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "--data: {} does not say how many classes there are; write their names into classes.txt beside the "
                "shards, or use --head N",
                root.string());
  }
  if (given != 0 && given < found) {
    throw Error(ErrorCode::kInvalidArgument, "--head {} is less than the {} classes in {}", given, found,
                root.string());
  }
  return given != 0 ? given : found;
}

}  // namespace

Sets find_sets(const fs::path& root, int64_t num_classes, uint64_t seed) {
  Sets sets{.train = find_set(root, "train")};
  sets.test = find_set(root, "val");
  if (!sets.test) sets.test = find_set(root, "test");
  if (!sets.train) {
    sets.train = sets.test = whole_set(root);
    auto parts = train::random_split(sets.train->size(), {0.9, 0.1}, seed);
    sets.train_samples = std::move(parts[0]);
    sets.test_samples = std::move(parts[1]);
  } else if (!sets.test) {
    throw Error(ErrorCode::kNotFound, "--data: {} has a set train, but neither val nor test", root.string());
  } else {
    sets.train_samples = all_of(*sets.train);
    sets.test_samples = all_of(*sets.test);
    if (sets.train->classes() != sets.test->classes()) {
      std::vector<std::string> different;  // in one of them only
      auto train = sets.train->classes(), test = sets.test->classes();
      std::ranges::sort(train);
      std::ranges::sort(test);
      std::ranges::set_symmetric_difference(train, test, std::back_inserter(different));
      throw Error(ErrorCode::kInvalidArgument, "--data: the sets in {} have different classes, {} and {} of them: {}",
                  root.string(), train.size(), test.size(),
                  different.empty() ? "their order differs" : different.front() + " is in one of them only");
    }
  }
  sets.num_classes = count_classes(root, sets.train->classes(), num_classes);
  return sets;
}

Pictures::Pictures(std::shared_ptr<const Listing> listing, std::vector<int64_t> samples,
                   const train::ImageTransform& transform, int64_t num_classes)
    : listing_(std::move(listing)), samples_(std::move(samples)), decoder_(transform), num_classes_(num_classes) {}

train::Batch Pictures::batch(const train::BatchRequest& request) const {
  train::Batch batch{decoder_.empty(request), request.empty({request.size()}, at::kLong)};
  auto* target = batch.target.mutable_data_ptr<int64_t>();
  const auto count = request.for_each([&](int64_t row, int64_t sample, train::SampleRandom& random) {
    const auto picture = listing_->read(samples_[static_cast<size_t>(sample)]);
    if (picture.target >= num_classes_) {
      throw Error(ErrorCode::kDataLoss, "{} is of class {}, but the network has {} classes; see --head", picture.name,
                  picture.target, num_classes_);
    }
    decoder_.decode(std::as_bytes(std::span(picture.bytes)), picture.name, random, batch.data, row);
    target[row] = picture.target;
  });
  return {batch.data.narrow(0, 0, count), batch.target.narrow(0, 0, count)};
}

void draw_shapes(const fs::path& folder, const Preset& preset, dist::World& world) {
  recipes::on_rank_zero(world, [&] {
    if (fs::exists(folder)) return;
    const fs::path partial = folder.string() + ".partial";
    fs::remove_all(partial);
    const auto side = preset.shape_side;
    for (int64_t i = 0; i < preset.num_shapes + kShapesToTest; ++i) {
      const auto shape = i % recipes::kNumShapes;
      const auto to =
          partial / (i < preset.num_shapes ? "train" : "val") / recipes::kShapes[static_cast<size_t>(shape)];
      fs::create_directories(to);
      replace_file(to / fmt::format("{:05}.png", i), encode_png(recipes::draw_picture(shape, i, side), side, side, 3));
    }
    fs::rename(partial, folder);
  });
}

train::ImageTransform testing_transform(const Preset& preset) {
  const auto size = preset.image_size;
  return {.height = size,
          .width = size,
          .shorter_side = std::lround(static_cast<double>(size) / preset.tested_side),
          .normalization = train::imagenet_normalization(),
          .memory_format = at::MemoryFormat::ChannelsLast};
}

train::ImageTransform training_transform(const Preset& preset) {
  auto transform = testing_transform(preset);
  transform.random_crop = train::RandomResizedCrop{.min_area = preset.min_area};
  transform.flip_probability = 0.5;
  return transform;
}

}  // namespace images
