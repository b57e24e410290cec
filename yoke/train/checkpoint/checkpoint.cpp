#include "yoke/train/checkpoint/checkpoint.h"

#include <ATen/ops/full.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/dist/world.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOwnPrefix = "yoke.";
constexpr std::string_view kFormatKey = "yoke.format";
constexpr std::string_view kFormat = "yoke-checkpoint";
constexpr std::string_view kVersionKey = "yoke.version";
constexpr int64_t kVersion = 1;
constexpr std::string_view kStepKey = "yoke.step";
constexpr std::string_view kDataCrcKey = "yoke.crc32.data";
constexpr std::string_view kHeaderCrcKey = "yoke.crc32.header";  // of the header with this field as kNoCrc
constexpr std::string_view kNoCrc = "00000000";

uint32_t crc_of(std::span<const std::byte> bytes, uint32_t crc = 0) {
  // zlib takes a null pointer, an empty span's, as a request to start over.
  return bytes.empty()
             ? crc
             : static_cast<uint32_t>(crc32_z(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

std::string crc_text(uint32_t crc) { return fmt::format("{:08x}", crc); }

/// Where the value of a field of our own stands in the header. A caller's text cannot look like one: its quotes are
/// escaped there.
size_t find_value(std::string_view header, std::string_view key) {
  const auto lead = fmt::format("\"{}\":\"", key);
  const size_t at = header.find(lead);
  if (at == header.npos || at + lead.size() + kNoCrc.size() > header.size()) return header.npos;
  return at + lead.size();
}

std::string header_crc(std::string header, size_t field) {
  header.replace(field, kNoCrc.size(), kNoCrc);
  return crc_text(crc_of(std::as_bytes(std::span(header))));
}

const std::string& field_of(const StringMap& metadata, std::string_view key, const std::string& what) {
  const auto found = metadata.find(std::string(key));
  if (found == metadata.end()) throw Error(ErrorCode::kDataLoss, "{}: the header has no {}", what, key);
  return found->second;
}

int64_t number_of(const StringMap& metadata, std::string_view key, const std::string& what) {
  const auto& text = field_of(metadata, key, what);
  const auto value = parse_int(text);
  if (!value || *value < 0) throw Error(ErrorCode::kDataLoss, "{}: {} is '{}'", what, key, text);
  return *value;
}

/// Checks who wrote the file and that it is unharmed; returns the step.
int64_t verify(std::span<const std::byte> file, const SafetensorsHeader& header, const std::string& what) {
  const auto format = header.metadata.find(std::string(kFormatKey));
  if (format == header.metadata.end() || format->second != kFormat) {
    throw Error(ErrorCode::kDataLoss, "{}: a safetensors file, but no checkpoint of yoke", what);
  }
  const auto header_size = static_cast<size_t>(header.num_bytes);
  const std::string text(reinterpret_cast<const char*>(file.data()), header_size);
  const size_t field = find_value(text, kHeaderCrcKey);
  if (field == text.npos) throw Error(ErrorCode::kDataLoss, "{}: the header has no {}", what, kHeaderCrcKey);
  if (std::string_view(text).substr(field, kNoCrc.size()) != header_crc(text, field)) {
    throw Error(ErrorCode::kDataLoss, "{}: the header does not match its checksum", what);
  }
  const int64_t version = number_of(header.metadata, kVersionKey, what);
  if (version != kVersion) {
    throw Error(ErrorCode::kFailedPrecondition, "{}: format version {}; this program reads {}: use a newer yoke", what,
                version, kVersion);
  }
  if (field_of(header.metadata, kDataCrcKey, what) != crc_text(crc_of(file.subspan(header_size)))) {
    throw Error(ErrorCode::kDataLoss, "{}: the data does not match its checksum", what);
  }
  return number_of(header.metadata, kStepKey, what);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error(error.value(), "making the folder " + folder.string());
}

/// Names of a folder's entries; none when it does not exist.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw system_error(error.value(), "reading the folder " + folder.string());
  }
  return names;
}

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".safetensors";

std::string name_of(int64_t step) { return fmt::format("{}{:012}{}", kPrefix, step, kSuffix); }

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::min(kSuffix.size(), name.size()));
  const auto step = parse_int(name);
  // Only the name that we would give: "checkpoint-7.safetensors" is somebody's own copy.
  return step && *step >= 0 && name == fmt::format("{:012}", *step) ? step : std::nullopt;
}

/// What replace_file leaves of us when killed: ".checkpoint-000000000001.safetensors.XXXXXX.tmp".
bool is_our_temporary(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  constexpr size_t kRandom = 7;  // ".XXXXXX"
  if (!name.starts_with('.') || !name.ends_with(kEnd) || name.size() < 1 + kRandom + kEnd.size()) return false;
  return step_of(name.substr(1, name.size() - 1 - kRandom - kEnd.size())).has_value();
}

/// A lock on a temporary shows other writers that its own is alive. It lasts as long as the result.
UniqueFd mark_in_use(int temporary) {
  UniqueFd mark(fcntl(temporary, F_DUPFD_CLOEXEC, 0));
  if (mark) flock(mark.value(), LOCK_EX | LOCK_NB);
  return mark;
}

/// For the moment between a temporary's making and its lock.
constexpr auto kAbandonedAfter = std::chrono::minutes(1);

void remove_abandoned_temporaries(const fs::path& folder) {
  const auto now = fs::file_time_type::clock::now();
  for (const auto& name : names_in(folder)) {
    if (!is_our_temporary(name)) continue;
    const auto path = folder / name;
    std::error_code error;
    const auto written = fs::last_write_time(path, error);
    if (error || written > now - kAbandonedAfter) continue;
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd && flock(fd.value(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

/// A small exchange between ranks lives where their process group can take it.
at::Tensor flag(dist::World& world, int64_t value) {
  return at::full({1}, value, at::TensorOptions(at::kLong).device(world.device()));
}

}  // namespace

void write_checkpoint(const fs::path& path, int64_t step, const CheckpointState& state) {
  if (step < 0) throw Error(ErrorCode::kInvalidArgument, "writing {}: the step is {}", path.string(), step);
  auto metadata = state.metadata;
  for (const auto& [key, value] : metadata) {
    if (key.starts_with(kOwnPrefix)) {
      throw Error(ErrorCode::kInvalidArgument, "writing {}: the metadata name '{}' is the format's own", path.string(),
                  key);
    }
  }
  metadata.insert({{std::string(kFormatKey), std::string(kFormat)},
                   {std::string(kVersionKey), std::to_string(kVersion)},
                   {std::string(kStepKey), std::to_string(step)},
                   {std::string(kDataCrcKey), std::string(kNoCrc)},
                   {std::string(kHeaderCrcKey), std::string(kNoCrc)}});
  auto layout = lay_out_safetensors(state.tensors, metadata);
  UniqueFd mark;  // until after the rename, for which replace_file closes its own descriptor
  try {
    replace_file(path, [&](int fd) {
      mark = mark_in_use(fd);
      const auto what = path.string();
      write_all(fd, std::as_bytes(std::span(layout.header)), what);
      uint32_t crc = 0;
      stream_tensors(layout, state.tensors, [&](auto bytes) {
        crc = crc_of(bytes, crc);
        write_all(fd, bytes, what);
      });
      auto& header = layout.header;
      header.replace(find_value(header, kDataCrcKey), kNoCrc.size(), crc_text(crc));
      const size_t field = find_value(header, kHeaderCrcKey);
      header.replace(field, kNoCrc.size(), header_crc(header, field));
      if (lseek(fd, 0, SEEK_SET) != 0) throw system_error(errno, "writing " + what);
      write_all(fd, std::as_bytes(std::span(header)), what);
    });
  } catch (const Error& error) {
    const auto folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    struct statvfs disk {};
    if (error.code() != ErrorCode::kUnavailable || statvfs(folder.c_str(), &disk) != 0) throw;
    throw Error(error.code(), "{}; it needs {}, and {} is free there", error.what(), format_bytes(layout.num_bytes),
                format_bytes(static_cast<int64_t>(disk.f_bavail * disk.f_frsize)));
  }
}

Checkpoint read_checkpoint(const fs::path& path) {
  const auto what = path.string();
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) throw system_error(errno, "reading " + what);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kDataLoss, "{}: not a regular file", what);
  const MappedFile file(path);
  auto header = parse_safetensors_header(file.bytes(), what);
  Checkpoint checkpoint{.path = path, .step = verify(file.bytes(), header, what)};
  checkpoint.state.tensors = copy_tensors(file.bytes(), header, what);
  std::erase_if(header.metadata, [](const auto& entry) { return entry.first.starts_with(kOwnPrefix); });
  checkpoint.state.metadata = std::move(header.metadata);
  return checkpoint;
}

CheckpointFolder::CheckpointFolder(fs::path folder, const CheckpointFolderOptions& options)
    : folder_(std::move(folder)), keep_(options.keep) {
  if (keep_ < 1) throw Error(ErrorCode::kInvalidArgument, "checkpoints in {}: keep is {}", folder_.string(), keep_);
}

fs::path CheckpointFolder::path_of(int64_t step) const { return folder_ / name_of(step); }

std::vector<int64_t> CheckpointFolder::steps() const {
  std::vector<int64_t> steps;
  for (const auto& name : names_in(folder_)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

fs::path CheckpointFolder::save(int64_t step, const CheckpointState& state) const {
  make_folder(folder_);
  const auto before = steps();
  const auto path = path_of(step);
  try {
    write_checkpoint(path, step, state);
  } catch (const Error& error) {
    if (before.empty()) throw;
    throw Error(error.code(), "{}; {} is as it was", error.what(), path_of(before.back()).filename().string());
  }
  try {
    prune(step);
    remove_abandoned_temporaries(folder_);
  } catch (const Error&) {
    // The checkpoint is safe; what could not be removed is tried again after the next save.
  }
  return path;
}

void CheckpointFolder::prune(int64_t newest) const {
  auto candidates = steps();
  std::erase_if(candidates, [&](int64_t step) { return step > newest; });
  const auto count = static_cast<int64_t>(candidates.size());
  for (int64_t i = 0; i < count - keep_; ++i) unlink(path_of(candidates[static_cast<size_t>(i)]).c_str());
}

Checkpoint CheckpointFolder::read(int64_t step) const {
  auto checkpoint = read_checkpoint(path_of(step));
  if (checkpoint.step != step) {
    throw Error(ErrorCode::kDataLoss, "{}: holds step {}, not the step of its name", checkpoint.path.string(),
                checkpoint.step);
  }
  return checkpoint;
}

std::optional<Checkpoint> CheckpointFolder::load_latest(const Warn& warn) const {
  constexpr int kMaxAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    std::optional<Error> newest_error;
    bool vanished = false;
    for (auto left = steps(); !left.empty() && !vanished; left.pop_back()) {
      try {
        return read(left.back());
      } catch (const Error& error) {
        // A running writer has pruned it since the listing, so there is a newer one: look again.
        vanished = error.code() == ErrorCode::kNotFound && attempt < kMaxAttempts;
        if (vanished) continue;
        if (!newest_error) newest_error = error;
        warn(fmt::format("refused {}", error.what()));
      }
    }
    if (vanished) continue;
    if (!newest_error) return std::nullopt;
    throw Error(newest_error->code(), "no usable checkpoint in {}: {}", folder_.string(), newest_error->what());
  }
}

std::optional<Checkpoint> CheckpointFolder::load_latest(dist::World& world, const Warn& warn) const {
  constexpr int64_t kNone = -1, kFailed = -2;
  std::optional<Checkpoint> found;
  std::exception_ptr failure;
  auto choice = flag(world, kNone);
  if (world.rank() == 0) {
    try {
      found = load_latest(warn);
      if (found) choice.fill_(found->step);
    } catch (...) {
      failure = std::current_exception();
      choice.fill_(kFailed);
    }
  }
  world.broadcast(choice);
  if (failure) std::rethrow_exception(failure);
  const auto step = choice.item<int64_t>();
  if (step == kFailed) {
    throw Error(ErrorCode::kDataLoss, "rank 0 found no usable checkpoint in {}; its message says why",
                folder_.string());
  }
  if (step == kNone) return std::nullopt;

  if (world.rank() != 0) {
    try {
      found = read(step);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  const auto done = world.all_gather(flag(world, failure ? 0 : 1)).cpu();  // [ranks, 1]
  if (failure) std::rethrow_exception(failure);
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    if (done[rank].item<int64_t>() == 0) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "rank {} could not read {}: its message says why; all ranks need the folder", rank,
                  path_of(step).string());
    }
  }
  return found;
}

FolderLock::FolderLock(const fs::path& folder) {
  make_folder(folder);
  const auto path = folder / ".yoke-lock";
  fd_ = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd_) throw system_error(errno, "opening " + path.string());
  if (flock(fd_.value(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw system_error(errno, "locking " + path.string());
    auto holder = read_file(path);
    throw Error(ErrorCode::kUnavailable,
                "the folder {} is in use by another run{}{}; wait for it, or choose another folder", folder.string(),
                holder.empty() ? "" : ": ", holder);
  }
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const auto holder = fmt::format("pid {} on {}", getpid(), host);
  // Only for the message above: on a full disk it stays empty.
  if (ftruncate(fd_.value(), 0) == 0) [[maybe_unused]]
    const auto count = write(fd_.value(), holder.data(), holder.size());
}

}  // namespace yoke::train
