// yoke/train/checkpoint/detail/whole_file.h -- a checkpoint in one file, which one rank writes if all ranks have the
// same state. docs/checkpoint.md has the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "yoke/train/checkpoint/stored_checkpoint.h"
#include "yoke/train/format/safetensors.h"

namespace yoke::train {

/// Called on the writing thread with the number of bytes written so far and the size of the file.
using OnWritten = std::function<void(int64_t written_bytes, int64_t num_bytes)>;

/// Replaces `path` by a checkpoint, atomically: even after a crash, `path` is the old file or the new one.
/// Threads  the tensors must not change during the call.
/// Errors   kUnavailable: the disk is full (gives the bytes needed and free); see write_safetensors.
void write_whole_file(const std::filesystem::path& path, int64_t step, const TensorMap& tensors,
                      const StringMap& metadata, const OnWritten& on_written = {});

/// See read_checkpoint.
StoredCheckpoint read_whole_file(const std::filesystem::path& path);

/// The header's metadata, unchecked. Errors: those of parse_safetensors_header.
StringMap whole_file_metadata(const std::filesystem::path& path);

}  // namespace yoke::train
