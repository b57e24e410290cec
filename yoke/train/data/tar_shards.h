// yoke/train/data/tar_shards.h -- samples from tar files in the layout of WebDataset.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace yoke::train {

/// The files of one sample.
struct TarSample {
  std::string key;  ///< Path up to the file name's first dot, equal for all files: "train/000001" of train/000001.jpg.
  /// Key: the rest of the file name in small letters, as webdataset has it: "jpg" of 000001.JPG, or "seg.png". Value:
  /// the bytes.
  std::vector<std::pair<std::string, std::string>> files;

  /// The bytes of the file with this extension, in small or capital letters.
  /// Errors  kDataLoss: there is no such file; the message names key and extension.
  const std::string& at(const std::string& extension) const;
};

/// A source of the samples in tar files: neighbouring files with the same key are one sample. The constructor reads all
/// headers once. So samples have numbers, an epoch can begin anywhere, and ranks and workers divide samples, not files.
/// Formats are POSIX ustar and pax, and GNU's, with sparse files of up to 1 GiB; entries that are not regular files are
/// skipped.
///
/// Reading in a random order over all shards needs an SSD. On a hard disk, use the sampler
/// `shuffled_shards(shards.shard_sizes(), window, seed)`: it reads shards one after the other and shuffles within a
/// window.
class TarShards {
 public:
  /// Errors  kInvalidArgument: no paths; kDataLoss (names the file and the position or the sample): a file is not a tar
  ///         file, is empty, is compressed, or ends early, or a sample has two files with one extension; as errno says,
  ///         with the path.
  explicit TarShards(const std::vector<std::filesystem::path>& paths);

  int64_t size() const;
  const std::vector<int64_t>& shard_sizes() const;  ///< Samples in each shard.
  const std::string& name(int64_t index) const;     ///< The key of a sample.

  /// Errors  kDataLoss: a shard is shorter than when it was opened; as errno says. The message names the shard.
  TarSample sample(int64_t index) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace yoke::train
