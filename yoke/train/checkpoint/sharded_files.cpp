#include "yoke/train/checkpoint/detail/sharded_files.h"

#include <ATen/ops/empty.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/sysfs.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/train/checkpoint/step_folder.h"
#include "yoke/train/format/safetensors_reader.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

constexpr auto kIndexFormat = "yoke-sharded-checkpoint";
constexpr auto kShardFormat = "yoke-shard";
constexpr int kShardedVersion = 1;
constexpr size_t kMaxIndexBytes = 100'000'000;
constexpr std::string_view kShardPrefix = "shard-", kShardSuffix = ".safetensors";

std::string crc_of(std::span<const std::byte> bytes) {
  return fmt::format("{:08x}", crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string crc_of(const at::Tensor& values) {
  const auto dense = values.detach().cpu().contiguous();
  return crc_of(std::span(static_cast<const std::byte*>(dense.data_ptr()), dense.nbytes()));
}

std::string crc_of(const std::string& text) { return crc_of(std::as_bytes(std::span(text))); }

std::string make_save_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string shard_name(const std::string& save, int64_t rank, int64_t size) {
  return fmt::format("{}{}-{:05}-of-{:05}.safetensors", kShardPrefix, save, rank, size);
}

void write_shard(const fs::path& path, const TensorSlices& slices, const StringMap& marks,
                 const OnWritten& on_written) {
  TensorMap tensors;
  auto table = Json::object();
  for (const auto& slice : slices) {
    const auto values = slice.flat();
    tensors.emplace(slice.name, values);
    table[slice.name] = {{"shape", slice.shape}, {"first", slice.first}, {"crc32", crc_of(values)}};
  }
  auto metadata = marks;
  metadata["yoke.slices"] = table.dump();
  metadata["yoke.crc32"] = crc_of(metadata["yoke.slices"]);
  const auto layout = lay_out_safetensors(tensors, metadata);
  int64_t written_bytes = 0;
  replace_file(path, [&](int fd) {
    const auto write = [&](std::span<const std::byte> bytes) {
      write_all(fd, bytes, path.string());
      written_bytes += std::ssize(bytes);
      if (on_written) on_written(written_bytes, layout.num_bytes);
    };
    write(std::as_bytes(std::span(layout.header)));
    stream_tensors(layout, tensors, write);
  });
}

/// Returns the names of the files in the index; nullopt if the index cannot be read.
std::optional<std::set<std::string>> files_of_index(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kShardIndex, ignored))
    return ignored ? std::nullopt : std::optional(std::set<std::string>());
  try {
    return Json::parse(read_regular_file(folder / kShardIndex, kMaxIndexBytes))
        .at("files")
        .get<std::set<std::string>>();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Removes shards that are not in `keep`, and temporary files. A file that cannot be removed does no harm.
void remove_other_files(const fs::path& folder, const std::set<std::string>& keep) {
  std::error_code ignored;
  for (const auto& file : entries_of(folder)) {
    const auto name = file.filename().string();
    const bool is_shard = name.starts_with(kShardPrefix) && name.ends_with(kShardSuffix);
    const bool is_torn =
        (name.starts_with(fmt::format(".{}", kShardPrefix)) || name.starts_with(fmt::format(".{}.", kShardIndex))) &&
        name.ends_with(".tmp");
    if ((is_shard || is_torn) && !keep.contains(name)) fs::remove(file, ignored);
  }
}

[[noreturn]] void throw_damaged(const fs::path& path, const std::string& reason) {
  throw Error(ErrorCode::kDataLoss, "{}: {}; use another checkpoint", path.string(), reason);
}

struct Index {
  int64_t step = 0;
  std::string save;                ///< The id of the save, which the shards contain too.
  std::vector<std::string> files;  ///< Names of the shards, by rank.
  StringMap metadata;
};

Index read_index(const fs::path& folder) {
  const auto path = folder / kShardIndex;
  if (!fs::exists(path)) {
    throw Error(ErrorCode::kNotFound, "{}: there is no sharded checkpoint (no {}): no save was completed here",
                folder.string(), kShardIndex);
  }
  try {
    auto text = Json::parse(read_regular_file(path, kMaxIndexBytes));
    if (text.at("format") != kIndexFormat) throw_damaged(path, "it is not an index of a sharded checkpoint");
    if (const auto version = text.at("version").get<int>(); version != kShardedVersion) {
      throw Error(ErrorCode::kFailedPrecondition, "{}: format {} is newer than this yoke reads ({}); update yoke",
                  path.string(), version, kShardedVersion);
    }
    const auto crc = text.at("crc32").get<std::string>();
    text.erase("crc32");
    if (crc_of(text.dump()) != crc) throw_damaged(path, "its checksum differs");
    Index index{text.at("step").get<int64_t>(), text.at("save").get<std::string>(),
                text.at("files").get<std::vector<std::string>>(), text.at("metadata").get<StringMap>()};
    if (index.files.empty()) throw_damaged(path, "it lists no shards");
    for (const auto& name : index.files) {
      if (!name.starts_with(kShardPrefix) || !name.ends_with(kShardSuffix) || name.find('/') != name.npos) {
        throw_damaged(path, fmt::format("it names '{}'", name));
      }
    }
    return index;
  } catch (const Json::exception& error) {
    throw_damaged(path, fmt::format("it is torn or changed ({})", error.what()));
  }
}

}  // namespace

TensorSlices own_slices(const TensorSlices& slices, const std::vector<PlannedTensor>& plan, int64_t rank) {
  std::map<std::string, const TensorSlice*> held;
  for (const auto& slice : slices) held.emplace(slice.name, &slice);
  TensorSlices own;
  for (const auto& planned : plan) {
    const bool is_mine = planned.parts.empty()
                             ? rank == 0 && held.contains(planned.name)
                             : std::ranges::any_of(planned.parts, [&](const auto& part) { return part.rank == rank; });
    if (is_mine) own.push_back(*held.at(planned.name));
  }
  return own;
}

void write_sharded(dist::Group& group, const fs::path& folder, int64_t step, const TensorSlices& slices,
                   const StringMap& metadata, const OnWritten& on_written) {
  const auto what = fmt::format("{}: the checkpoint of step {} was not written, and earlier files are unchanged",
                                folder.string(), step);
  if (group.rank() == 0) {
    if (const auto present = files_of_index(folder)) remove_other_files(folder, *present);  // files of failed saves
  }
  const auto save = group.all_gather_text(group.rank() == 0 ? make_save_id() : "").front();
  const auto shard = folder / shard_name(save, group.rank(), group.size());
  try {
    on_all_ranks(group, what, [&] {
      make_folder(folder);
      write_shard(shard, slices,
                  {{"yoke.format", kShardFormat}, {"yoke.save", save}, {"yoke.step", std::to_string(step)}},
                  on_written);
    });
  } catch (const std::exception&) {
    std::error_code ignored;
    fs::remove(shard, ignored);   // so that failed attempts do not fill the disk further
    fs::remove(folder, ignored);  // succeeds on the last rank if the folder is empty
    throw;
  }
  on_all_ranks(group, what, [&] {
    if (group.rank() != 0) return;
    std::set<std::string> files;
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      const auto name = shard_name(save, rank, group.size());
      if (!fs::is_regular_file(fs::symlink_status(folder / name))) {
        throw Error(ErrorCode::kFailedPrecondition,
                    "rank {} has written its shard, and {} is not there: all ranks must see one and the same folder",
                    rank, (folder / name).string());
      }
      files.insert(name);
    }
    Json index = {{"format", kIndexFormat}, {"version", kShardedVersion}, {"step", step}, {"save", save},
                  {"files", files},         {"metadata", metadata}};
    index["crc32"] = crc_of(index.dump());
    replace_file(folder / kShardIndex, [&](int fd) {
      const auto text = index.dump(1) + "\n";
      write_all(fd, text, (folder / kShardIndex).string());
    });
    remove_other_files(folder, files);
  });
}

namespace {

/// The files of a checkpoint, mapped.
struct Shards {
  /// A part of a slice in one file.
  struct Piece {
    int64_t first = 0, length = 0;
    size_t file = 0;
    std::string crc;
    std::unique_ptr<std::atomic<bool>> is_checked = std::make_unique<std::atomic<bool>>(false);
  };
  struct Stored {
    at::ScalarType dtype;
    std::vector<int64_t> shape;
    std::vector<Piece> pieces;  ///< The pieces that cover the tensor, in order.
  };

  fs::path folder;
  Index index;
  std::vector<SafetensorsReader> files;
  std::map<std::string, Stored> tensors;

  template <typename... Args>
  [[noreturn]] void damaged(const std::string& name, fmt::format_string<Args...> format, Args&&... args) const {
    throw_damaged(folder / name, fmt::format(format, std::forward<Args>(args)...));
  }

  void read_shard(const std::string& name);
  void check_cover();
  at::Tensor read(const std::string& name, int64_t first, int64_t length) const;
};

void Shards::read_shard(const std::string& name) {
  const auto path = folder / name;
  if (!fs::exists(path)) damaged(name, "shard {} of {} is missing", files.size() + 1, index.files.size());
  const auto& file = files.emplace_back(path);
  const auto mark = [&](const std::string& key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (mark("yoke.format") != kShardFormat) damaged(name, "it is not a shard of a checkpoint");
  if (mark("yoke.save") != index.save || mark("yoke.step") != std::to_string(index.step)) {
    damaged(name, "it is of another save (step {}) than the index (step {})", mark("yoke.step"), index.step);
  }
  if (crc_of(mark("yoke.slices")) != mark("yoke.crc32")) damaged(name, "the checksum of its table of slices differs");
  try {
    const auto table = Json::parse(mark("yoke.slices"));
    for (const auto& tensor : file.names()) {
      const auto& slot = file.slot(tensor);
      if (slot.shape.size() != 1 || !table.contains(tensor)) damaged(name, "tensor '{}' is not a slice", tensor);
      const auto& entry = table.at(tensor);
      const auto shape = entry.at("shape").get<std::vector<int64_t>>();
      const auto [place, is_new] = tensors.try_emplace(tensor, Stored{slot.dtype, shape, {}});
      auto& stored = place->second;
      if (stored.dtype != slot.dtype || stored.shape != shape) {
        damaged(name, "tensor '{}' has another shape or dtype than in other shards", tensor);
      }
      stored.pieces.push_back(
          {entry.at("first").get<int64_t>(), slot.shape[0], files.size() - 1, entry.at("crc32").get<std::string>()});
    }
  } catch (const Json::exception& error) {
    damaged(name, "its table of slices is torn or changed ({})", error.what());
  }
}

void Shards::check_cover() {
  for (auto& [name, stored] : tensors) {
    int64_t size = 1, next = 0;
    for (const int64_t length : stored.shape) {
      if (length < 0 || __builtin_mul_overflow(size, length, &size)) {
        damaged(kShardIndex, "the shape of '{}' is impossible", name);
      }
    }
    std::ranges::sort(stored.pieces, {}, [](const auto& piece) { return std::pair(piece.first, piece.length); });
    for (const auto& piece : stored.pieces) {
      if (piece.first != next) break;
      next += piece.length;
    }
    if (next != size) damaged(kShardIndex, "element {} of '{}' is in no shard, or in two", next, name);
  }
}

at::Tensor Shards::read(const std::string& name, int64_t first, int64_t length) const {
  const auto& stored = tensors.at(name);
  at::Tensor result;
  int64_t done = 0;
  for (const auto& piece : stored.pieces) {
    const int64_t begin = std::max(first, piece.first);
    const int64_t end = std::min(first + length, piece.first + piece.length);
    if (begin >= end) continue;
    const auto& file = files[piece.file];
    if (!piece.is_checked->load()) {
      if (crc_of(file.bytes(name)) != piece.crc) {
        damaged(index.files[piece.file], "'{}' is damaged: its checksum differs", name);
      }
      piece.is_checked->store(true);
    }
    const auto elements = file.elements(name, begin - piece.first, end - begin);
    if (end - begin == length) return elements;  // a view of the mapped file
    if (!result.defined()) result = at::empty({length}, at::TensorOptions(stored.dtype));
    result.narrow(0, done, end - begin).copy_(elements);
    done += end - begin;
  }
  return result.defined() ? result : at::empty({0}, at::TensorOptions(stored.dtype));
}

}  // namespace

StoredCheckpoint read_sharded(const fs::path& folder) {
  const auto shards = std::make_shared<Shards>();
  shards->folder = folder;
  shards->index = read_index(folder);
  for (const auto& name : shards->index.files) shards->read_shard(name);
  shards->check_cover();
  StoredCheckpoint checkpoint{.path = folder,
                              .step = shards->index.step,
                              .num_shards = std::ssize(shards->index.files),
                              .metadata = shards->index.metadata,
                              .marks = {{"yoke.save", shards->index.save}}};
  checkpoint.source.what = fmt::format("the checkpoint {}", folder.string());
  for (const auto& [name, stored] : shards->tensors) {
    checkpoint.source.tensors.emplace(name, TensorSource::Whole{stored.dtype, stored.shape});
  }
  checkpoint.source.read = [shards = std::shared_ptr<const Shards>(shards)](const std::string& name, int64_t first,
                                                                            int64_t length) {
    return shards->read(name, first, length);
  };
  return checkpoint;
}

StringMap sharded_metadata(const fs::path& folder) { return read_index(folder).metadata; }

void remove_sharded(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(fs::symlink_status(folder, ignored))) return;
  fs::remove(folder / kShardIndex, ignored);
  remove_other_files(folder, {});
  fs::remove(folder, ignored);
}

}  // namespace yoke::train
