// yoke/train/image/image_folder.h -- a data set of image files, with a folder for each class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "yoke/train/data/samples.h"
#include "yoke/train/data/source.h"
#include "yoke/train/image/image_transform.h"

namespace yoke::train {

struct ImageFolderOptions {
  ImageTransform transform;
  bool allow_empty_classes = false;  ///< If false, an empty class is an error, because a copy may be incomplete.
};

/// The files ROOT/CLASS/.../NAME.{jpg,jpeg,png}, read and decoded when a batch needs them: a source for Loader.
///
///     Loader loader(ImageFolder("train", {.transform = {.random_crop = RandomResizedCrop{}}}), world, options);
///
/// Order    that of torchvision's ImageFolder: classes by name, and their files by folder and name. A target is the
///          number of the class. The constructor lists the folders; copies of the object share the list.
/// Files    symbolic links are followed. Extensions may be in capitals. Files with other extensions are ignored.
/// Threads  any number may call `batch` at the same time.
/// Errors   those of scanning, with the path: as errno says; kNotFound: there is no class; kInvalidArgument: a class
///          has no image, an image has a format that torchvision reads and yoke does not (for example .webp), or an
///          option of the transform is out of range.
class ImageFolder {
 public:
  explicit ImageFolder(const std::filesystem::path& root, const ImageFolderOptions& options = {});

  int64_t size() const;
  const std::vector<std::string>& classes() const;
  std::filesystem::path path(int64_t sample) const;
  std::string name(int64_t sample) const;  ///< Its path below the root: "cat/1.png".
  int64_t target(int64_t sample) const;
  int64_t num_ignored() const;  ///< Number of files that are not images, or not in a class.

  /// Returns images transformed by `transform`, and int64 [batch] targets.
  /// Errors  for each sample, with its path: as errno says; those of ImageDecoder::decode.
  Batch batch(const BatchRequest& request) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace yoke::train
