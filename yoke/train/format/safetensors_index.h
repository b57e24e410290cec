// yoke/train/format/safetensors_index.h -- one model in several safetensors files, as Hugging Face lays it out:
// `model-00001-of-00003.safetensors` and so on, and `model.safetensors.index.json`, which says where each tensor is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "yoke/train/format/safetensors.h"

namespace yoke::train {

/// The names in an index, each with the name of its file.
///
/// A file's name is a plain one: an index cannot point out of its folder. What `metadata` holds is not looked at; its
/// `total_size` is known to be wrong in published files.
/// Errors  kDataLoss, beginning with `what`, for anything else, a name that appears twice included.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& what);

struct ShardOptions {
  std::string stem = "model";
  int64_t max_shard_bytes = 5'000'000'000;  ///< Of tensors; one that is larger gets a shard of its own.
};

/// Writes tensors in the order of their names into as few files as `max_shard_bytes` allows, then the index; a single
/// shard is `model.safetensors`, without an index. Returns what a SafetensorsReader opens: the index, or that file.
///
/// All files are on disk, as `.NAME.new`, before the first one takes its place: there must be room for an earlier set
/// and the new one. Where both have shards of the same names the earlier index is removed between, so that a crash at
/// that moment leaves none rather than one whose shards are of two models; otherwise it is the old set or the new one.
/// What an earlier set was opened by (its index, or its single file) goes last; shards that the new set does not have
/// stay behind.
///
/// Errors  kInvalidArgument when over 99999 shards are needed; see write_safetensors. An earlier set is then as it was,
///         unless a rename fails.
std::filesystem::path write_safetensors_shards(const std::filesystem::path& folder, const TensorMap& tensors,
                                               const StringMap& metadata = {}, const ShardOptions& options = {});

}  // namespace yoke::train
