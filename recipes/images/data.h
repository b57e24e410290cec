// recipes/images/data.h -- pictures in folders, tar shards or a CSV file, for training and for testing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "recipes/images/presets.h"
#include "yoke/dist/world.h"
#include "yoke/train/data/samples.h"
#include "yoke/train/data/source.h"
#include "yoke/train/image/image_transform.h"

namespace images {

/// The files of a set of pictures. Any number of threads may read.
class Listing {
 public:
  struct Picture {
    std::string name;  ///< For errors.
    std::string bytes;
    int64_t target = 0;
  };
  virtual ~Listing() = default;
  virtual int64_t size() const = 0;
  virtual Picture read(int64_t index) const = 0;
  /// The names of the classes; empty if the set does not say them.
  virtual const std::vector<std::string>& classes() const = 0;
};

/// Some pictures of a listing, decoded and transformed when a batch needs them: a source for Loader.
/// Errors  of batch: as errno says; kDataLoss: a picture is damaged, or its class is none of the network's.
class Pictures {
 public:
  Pictures(std::shared_ptr<const Listing> listing, std::vector<int64_t> samples,
           const yoke::train::ImageTransform& transform, int64_t num_classes);
  int64_t size() const { return static_cast<int64_t>(samples_.size()); }
  yoke::train::Batch batch(const yoke::train::BatchRequest& request) const;

 private:
  std::shared_ptr<const Listing> listing_;
  std::vector<int64_t> samples_;
  yoke::train::ImageDecoder decoder_;
  int64_t num_classes_;
};

struct Sets {
  std::shared_ptr<const Listing> train, test;
  std::vector<int64_t> train_samples, test_samples;
  int64_t num_classes = 0;
};

/// Finds the sets in `root`. Each of them is one of
/// - a folder of classes, as torchvision's ImageFolder reads it;
/// - a CSV file with the columns `path` (absolute, or from the file's folder) and `label` (numbers from 0, or names);
/// - tar shards as of WebDataset, with jpg, jpeg or png, and cls, the number of the class. The file classes.txt beside
/// them may have the
///   classes' names, one on a line.
/// `root` has the sets train and val (or test): the folders ROOT/train and ROOT/val, the files ROOT/train.csv and
/// ROOT/val.csv, or the shards ROOT/train*.tar and ROOT/val*.tar. Or `root` is one set, of which a tenth, drawn by
/// `seed`, is kept for testing. `num_classes` is the number of classes if it is not 0.
/// Errors  kNotFound: there is no set. kInvalidArgument: the sets have different classes, more classes than
/// num_classes,
///         or neither classes nor num_classes; kDataLoss: a CSV file has a line that cannot be read (names it).
Sets find_sets(const std::filesystem::path& root, int64_t num_classes, uint64_t seed);

/// Collective. Rank 0 draws the preset's pictures of shapes into FOLDER/train, and 500 into FOLDER/val, as PNG files,
/// if they are not there.
void draw_shapes(const std::filesystem::path& folder, const Preset& preset, yoke::dist::World& world);

/// How a picture becomes a row of a batch, for training and for testing.
yoke::train::ImageTransform training_transform(const Preset& preset);
yoke::train::ImageTransform testing_transform(const Preset& preset);

}  // namespace images
