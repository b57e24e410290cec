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
  std::string key;  ///< The files' common path up to the first dot of the name: "train/000001" of train/000001.jpg.
  std::vector<std::pair<std::string, std::string>>
      files;  ///< The rest of each name, "jpg" or "seg.png", and the bytes.

  /// The bytes of the file with this extension. Errors  kDataLoss: there is none; names key and extension.
  const std::string& at(const std::string& extension) const;
};

/// A source of the samples in tar files: neighbouring files with the same key are one sample. The headers are read
/// once, so that samples have numbers, an epoch can begin anywhere, and ranks and workers divide samples, not files.
/// Formats are POSIX ustar and pax, and GNU's; entries that are not regular files are passed over.
///
/// Reading in a random order over all shards needs an SSD. `shuffled_shards(shards.shard_sizes(), window, seed)` is the
/// sampler that reads shards one after the other and shuffles within a window.
class TarShards {
 public:
  /// Errors  kInvalidArgument: no paths; kDataLoss (names the file and the position): a file is not a tar file, is
  ///         compressed, or ends early; as errno says, with the path.
  explicit TarShards(const std::vector<std::filesystem::path>& paths);

  int64_t size() const;
  const std::vector<int64_t>& shard_sizes() const;  ///< Samples in each shard.

  /// Errors  kDataLoss: a shard is shorter than when it was opened; as errno says. The message names the shard.
  TarSample sample(int64_t index) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace yoke::train
