#include "yoke/train/shard/sharded_checkpoint.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/dist/world.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr auto kIndexName = "index.json";
constexpr auto kIndexFormat = "yoke-sharded-checkpoint";
constexpr auto kShardFormat = "yoke-shard";
constexpr int kShardedVersion = 1;
constexpr std::string_view kShardPrefix = "shard-";

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

/// What this rank writes, of what all hold: nothing that a lower rank has as well.
void write_shard(const fs::path& path, const TensorSlices& slices, const std::vector<PlannedTensor>& plan, int64_t rank,
                 const StringMap& marks) {
  std::map<std::string, const TensorSlice*> own;
  for (const auto& slice : slices) own.emplace(slice.name, &slice);
  TensorMap tensors;
  auto table = OrderedJson::object();
  for (const auto& planned : plan) {
    const bool is_mine = planned.parts.empty()
                             ? rank == 0 && own.contains(planned.name)
                             : std::ranges::any_of(planned.parts, [&](const auto& part) { return part.rank == rank; });
    if (!is_mine) continue;
    const auto& slice = *own.at(planned.name);
    tensors.emplace(slice.name, slice.values);
    table[slice.name] = {{"shape", slice.shape}, {"first", slice.first}, {"crc32", crc_of(slice.values)}};
  }
  auto metadata = marks;
  metadata["yoke.slices"] = table.dump();
  metadata["yoke.crc32"] = crc_of(metadata["yoke.slices"]);
  write_safetensors(path, tensors, metadata);
}

/// What the index names; nullopt when it cannot be read.
std::optional<std::set<std::string>> files_of_index(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kIndexName, ignored)) return ignored ? std::nullopt : std::optional(std::set<std::string>());
  try {
    return OrderedJson::parse(read_file(folder / kIndexName)).at("files").get<std::set<std::string>>();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Files that no index names. What cannot be removed stays behind, harmless.
void remove_other_files(const fs::path& folder, const std::set<std::string>& keep) {
  std::error_code failure, ignored;
  for (fs::directory_iterator entry(folder, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    const auto name = entry->path().filename().string();
    const bool is_shard = name.starts_with(kShardPrefix) && name.ends_with(".safetensors");
    const bool is_torn =
        (name.starts_with(fmt::format(".{}", kShardPrefix)) || name.starts_with(fmt::format(".{}.", kIndexName))) &&
        name.ends_with(".tmp");
    if ((is_shard || is_torn) && !keep.contains(name)) fs::remove(entry->path(), ignored);
  }
}

/// Removes a checkpoint, the index first; files that are not of one stay, and the folder with them.
void remove_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(folder / kIndexName, ignored);
  remove_other_files(folder, {});
  fs::remove(folder, ignored);
}

[[noreturn]] void throw_damaged(const fs::path& path, const std::string& reason) {
  throw Error(ErrorCode::kDataLoss, "{}: {}; use another checkpoint", path.string(), reason);
}

struct Index {
  int64_t step = 0;
  std::string save;                ///< The mark of its save, which its shards have too.
  std::vector<std::string> files;  ///< Of the shards, by rank.
  StringMap metadata;
};

Index read_index(const fs::path& folder) {
  const auto path = folder / kIndexName;
  if (!fs::exists(path)) {
    throw Error(ErrorCode::kNotFound, "{}: there is no sharded checkpoint (no {}): none was ever finished here",
                folder.string(), kIndexName);
  }
  try {
    auto text = OrderedJson::parse(read_file(path));
    if (text.at("format") != kIndexFormat) throw_damaged(path, "it is no index of a sharded checkpoint");
    if (const auto version = text.at("version").get<int>(); version != kShardedVersion) {
      throw Error(ErrorCode::kFailedPrecondition, "{}: format {} is newer than this yoke reads ({}); update yoke",
                  path.string(), version, kShardedVersion);
    }
    const auto crc = text.at("crc32").get<std::string>();
    text.erase("crc32");
    if (crc_of(text.dump()) != crc) throw_damaged(path, "its checksum differs");
    Index index{text.at("step").get<int64_t>(), text.at("save").get<std::string>(),
                text.at("files").get<std::vector<std::string>>(), text.at("metadata").get<StringMap>()};
    for (const auto& name : index.files) {
      if (!name.starts_with(kShardPrefix) || name.find('/') != name.npos) {
        throw_damaged(path, fmt::format("it names '{}'", name));
      }
    }
    return index;
  } catch (const OrderedJson::exception& error) {
    throw_damaged(path, fmt::format("it is torn or changed ({})", error.what()));
  }
}

}  // namespace

void write_sharded_checkpoint(dist::World& world, const fs::path& folder, int64_t step, const TensorSlices& slices,
                              const StringMap& metadata) {
  const auto what =
      fmt::format("{}: the checkpoint of step {} was not written, and what was there still is", folder.string(), step);
  std::string description;
  on_all_ranks(world, what, [&] {
    description = describe_slices(slices);
    if (world.rank() != 0) return;
    if (const auto present = files_of_index(folder)) remove_other_files(folder, *present);  // of saves that failed
  });
  const auto plan = plan_slices(world.all_gather_text(description));
  const auto save = world.all_gather_text(world.rank() == 0 ? make_save_id() : "").front();
  const auto shard = folder / shard_name(save, world.rank(), world.size());
  try {
    on_all_ranks(world, what, [&] {
      make_folder(folder);
      write_shard(shard, slices, plan, world.rank(),
                  {{"yoke.format", kShardFormat}, {"yoke.save", save}, {"yoke.step", std::to_string(step)}});
    });
  } catch (const std::exception&) {
    std::error_code ignored;
    fs::remove(shard, ignored);   // a full disk is not to get fuller with every attempt
    fs::remove(folder, ignored);  // by the last rank, when there is nothing else
    throw;
  }
  on_all_ranks(world, what, [&] {
    if (world.rank() != 0) return;
    std::set<std::string> files;
    for (int64_t rank = 0; rank < world.size(); ++rank) files.insert(shard_name(save, rank, world.size()));
    OrderedJson index = {{"format", kIndexFormat}, {"version", kShardedVersion}, {"step", step}, {"save", save},
                         {"files", files},         {"metadata", metadata}};
    index["crc32"] = crc_of(index.dump());
    replace_file(folder / kIndexName, [&](int fd) {
      const auto text = index.dump(1) + "\n";
      write_all(fd, std::as_bytes(std::span(text)), (folder / kIndexName).string());
    });
    remove_other_files(folder, files);
  });
}

struct ShardedCheckpoint::Impl : std::enable_shared_from_this<Impl> {
  /// A slice in a file.
  struct Piece {
    int64_t first = 0, length = 0;
    size_t file = 0;
    std::span<const std::byte> bytes;
    std::string crc;
    std::unique_ptr<std::atomic<bool>> is_checked = std::make_unique<std::atomic<bool>>(false);
  };
  struct Stored {
    at::ScalarType dtype;
    std::vector<int64_t> shape;
    std::vector<Piece> pieces;  ///< Covering it, in order.
  };

  fs::path folder;
  Index index;
  std::vector<MappedFile> files;
  std::map<std::string, Stored> tensors;

  template <typename... Args>
  [[noreturn]] void damaged(const std::string& name, fmt::format_string<Args...> format, Args&&... args) const {
    throw_damaged(folder / name, fmt::format(format, std::forward<Args>(args)...));
  }

  void read_shard(const std::string& name);
  void check_cover();
  at::Tensor read(const std::string& name, int64_t first, int64_t length) const;
};

void ShardedCheckpoint::Impl::read_shard(const std::string& name) {
  const auto path = folder / name;
  if (!fs::exists(path)) damaged(name, "shard {} of {} is missing", files.size() + 1, index.files.size());
  auto& file = files.emplace_back(path);
  const auto header = parse_safetensors_header(file.bytes(), path.string());
  const auto mark = [&](const std::string& key) {
    const auto found = header.metadata.find(key);
    return found == header.metadata.end() ? std::string() : found->second;
  };
  if (mark("yoke.format") != kShardFormat) damaged(name, "it is no shard of a checkpoint");
  if (mark("yoke.save") != index.save || mark("yoke.step") != std::to_string(index.step)) {
    damaged(name, "it is of another save (step {}) than the index (step {})", mark("yoke.step"), index.step);
  }
  if (crc_of(mark("yoke.slices")) != mark("yoke.crc32")) damaged(name, "the checksum of its table of slices differs");
  try {
    const auto table = OrderedJson::parse(mark("yoke.slices"));
    for (const auto& slot : header.slots) {
      if (slot.shape.size() != 1 || !table.contains(slot.name)) damaged(name, "tensor '{}' is no slice", slot.name);
      const auto& entry = table.at(slot.name);
      const auto shape = entry.at("shape").get<std::vector<int64_t>>();
      const auto [place, is_new] = tensors.try_emplace(slot.name, Stored{slot.dtype, shape, {}});
      auto& stored = place->second;
      if (stored.dtype != slot.dtype || stored.shape != shape) {
        damaged(name, "tensor '{}' has another shape or dtype than in other shards", slot.name);
      }
      const auto bytes = file.bytes().subspan(static_cast<size_t>(header.num_bytes + slot.begin_byte),
                                              static_cast<size_t>(slot.end_byte - slot.begin_byte));
      stored.pieces.push_back({entry.at("first").get<int64_t>(), slot.shape[0], files.size() - 1, bytes,
                               entry.at("crc32").get<std::string>()});
    }
  } catch (const OrderedJson::exception& error) {
    damaged(name, "its table of slices is torn or changed ({})", error.what());
  }
}

void ShardedCheckpoint::Impl::check_cover() {
  for (auto& [name, stored] : tensors) {
    int64_t size = 1, next = 0;
    for (const int64_t length : stored.shape) {
      if (length < 0 || __builtin_mul_overflow(size, length, &size)) {
        damaged(kIndexName, "the shape of '{}' is impossible", name);
      }
    }
    std::ranges::sort(stored.pieces, {}, [](const auto& piece) { return std::pair(piece.first, piece.length); });
    for (const auto& piece : stored.pieces) {
      if (piece.first != next) break;
      next += piece.length;
    }
    if (next != size) damaged(kIndexName, "element {} of '{}' is in no shard, or in two", next, name);
  }
}

at::Tensor ShardedCheckpoint::Impl::read(const std::string& name, int64_t first, int64_t length) const {
  const auto& stored = tensors.at(name);
  const auto element = static_cast<int64_t>(c10::elementSize(stored.dtype));
  at::Tensor result;
  int64_t done = 0;
  for (const auto& piece : stored.pieces) {
    const int64_t begin = std::max(first, piece.first);
    const int64_t end = std::min(first + length, piece.first + piece.length);
    if (begin >= end) continue;
    if (!piece.is_checked->load()) {
      if (crc_of(piece.bytes) != piece.crc)
        damaged(index.files[piece.file], "'{}' is damaged: its checksum differs", name);
      if (stored.dtype == at::kBool &&
          std::ranges::any_of(piece.bytes, [](auto byte) { return byte > std::byte{1}; })) {
        damaged(index.files[piece.file], "'{}' has a BOOL that is neither 0 nor 1", name);
      }
      piece.is_checked->store(true);
    }
    const auto* data = piece.bytes.data() + (begin - piece.first) * element;
    if (end - begin == length) {  // straight from the mapped file, which nobody writes to
      return at::from_blob(
          const_cast<std::byte*>(data), {length}, [self = shared_from_this()](void*) {},
          at::TensorOptions(stored.dtype));
    }
    if (!result.defined()) result = at::empty({length}, at::TensorOptions(stored.dtype));
    std::memcpy(static_cast<std::byte*>(result.data_ptr()) + done * element, data,
                static_cast<size_t>((end - begin) * element));
    done += end - begin;
  }
  return result.defined() ? result : at::empty({0}, at::TensorOptions(stored.dtype));
}

ShardedCheckpoint::ShardedCheckpoint(const fs::path& folder) {
  const auto impl = std::make_shared<Impl>();
  impl->folder = folder;
  impl->index = read_index(folder);
  impl->files.reserve(impl->index.files.size());
  for (const auto& name : impl->index.files) impl->read_shard(name);
  impl->check_cover();
  impl_ = impl;
}

int64_t ShardedCheckpoint::step() const { return impl_->index.step; }
int64_t ShardedCheckpoint::num_shards() const { return static_cast<int64_t>(impl_->index.files.size()); }
const StringMap& ShardedCheckpoint::metadata() const { return impl_->index.metadata; }

SliceSource ShardedCheckpoint::source() const {
  SliceSource source{.tensors = {}, .read = {}, .what = fmt::format("the checkpoint {}", impl_->folder.string())};
  for (const auto& [name, stored] : impl_->tensors)
    source.tensors.emplace(name, SliceSource::Whole{stored.dtype, stored.shape});
  source.read = [impl = impl_](const std::string& name, int64_t first, int64_t length) {
    return impl->read(name, first, length);
  };
  return source;
}

ShardedCheckpointFolder::ShardedCheckpointFolder(fs::path folder, const CheckpointFolderOptions& options)
    : folders_(std::move(folder), options, "", kIndexName,
               [](const fs::path& path) { return read_index(path).metadata; }) {}

void ShardedCheckpointFolder::save(dist::World& world, int64_t step, const TensorSlices& slices,
                                   const StringMap& metadata) const {
  const auto path = path_of(step);
  on_all_ranks(world, fmt::format("{}: nothing was written", path.string()),
               [&] { folders_.check_metric(step, metadata); });
  write_sharded_checkpoint(world, path, step, slices, metadata);
  if (world.rank() != 0) return;
  try {
    for (const int64_t old : folders_.superseded(step)) remove_checkpoint(folders_.path_of(old));
    for (const auto& name : names_in(folders_.path())) {
      const auto unfinished = folders_.path() / name;
      if (folders_.step_of(name) && !fs::exists(unfinished / kIndexName)) remove_checkpoint(unfinished);
    }
  } catch (const std::exception&) {
    // The checkpoint is safe; what could not be removed is tried again after the next save.
  }
}

std::optional<ShardedCheckpoint> ShardedCheckpointFolder::load_latest(dist::World& world, const Warn& warn) const {
  auto found = folders_.newest_sound(
      world,
      [this](int64_t step) {
        ShardedCheckpoint checkpoint(path_of(step));
        if (checkpoint.step() != step) {
          throw_damaged(path_of(step), fmt::format("it holds step {}, not the step of its name", checkpoint.step()));
        }
        return checkpoint;
      },
      warn);
  return found ? std::optional(std::move(found->second)) : std::nullopt;
}

}  // namespace yoke::train
