// yoke/train/format/safetensors_index.h -- one model in several safetensors files, in Hugging Face's layout:
// `model-00001-of-00003.safetensors` and so on, and `model.safetensors.index.json`, which says where each tensor is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "yoke/train/format/safetensors.h"

namespace yoke::train {

/// Returns the tensor names in an index, each with the name of its file.
///
/// A file name must be plain, so an index cannot refer to files outside its folder. `metadata` is ignored, because its
/// `total_size` is wrong in some published files.
/// Errors  kDataLoss, beginning with `what`, for any other content, and if a name appears twice.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& what);

struct ShardOptions {
  std::string stem = "model";
  int64_t max_shard_bytes = 5'000'000'000;  ///< Bytes of tensors in a shard; a larger tensor gets its own shard.
};

/// Writes tensors in the order of their names into as few files as `max_shard_bytes` allows, then the index. If one
/// file is enough, it is `model.safetensors`, and there is no index. Returns the path for a SafetensorsReader: the
/// index, or the single file.
///
/// The new files are first written as `.NAME.new`, so the disk must have room for the earlier set and the new one. Then
/// they are renamed. If the earlier set has shards with the same names, its index is removed before the renames. So a
/// crash during the renames leaves no index, and never an index whose shards belong to two models. Otherwise the folder
/// holds the old set or the new one. The file that opened the earlier set (its index, or its single file) is removed
/// last. Earlier shards whose names are not reused are kept.
///
/// Errors  kInvalidArgument: more than 99999 shards are needed; see also write_safetensors. After an error the earlier
///         set is unchanged, unless a rename failed.
std::filesystem::path write_safetensors_shards(const std::filesystem::path& folder, const TensorMap& tensors,
                                               const StringMap& metadata = {}, const ShardOptions& options = {});

}  // namespace yoke::train
