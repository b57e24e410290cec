#include "yoke/train/checkpoint/detail/whole_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <memory>
#include <span>
#include <string_view>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/train/format/safetensors_reader.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormatKey = "yoke.format";
constexpr std::string_view kFormat = "yoke-checkpoint";
constexpr std::string_view kVersionKey = "yoke.version";
constexpr int64_t kVersion = 1;
constexpr std::string_view kStepKey = "yoke.step";
constexpr std::string_view kDataCrcKey = "yoke.crc32.data";
constexpr std::string_view kHeaderCrcKey = "yoke.crc32.header";  // the checksum is computed while this field is kNoCrc
constexpr std::string_view kNoCrc = "00000000";

uint32_t updated_crc(std::span<const std::byte> bytes, uint32_t crc = 0) {
  // For an empty span, data() is null, and zlib's crc32 would return its start value instead of `crc`.
  return bytes.empty()
             ? crc
             : static_cast<uint32_t>(crc32_z(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

std::string crc_text(uint32_t crc) { return fmt::format("{:08x}", crc); }

/// The position in the header at which the value of one of yoke's fields begins. Text of the caller cannot look like
/// such a field, because its quotes are escaped.
size_t find_value(std::string_view header, std::string_view key) {
  const auto lead = fmt::format("\"{}\":\"", key);
  const size_t at = header.find(lead);
  if (at == header.npos || at + lead.size() + kNoCrc.size() > header.size()) return header.npos;
  return at + lead.size();
}

std::string header_crc(std::string header, size_t field) {
  header.replace(field, kNoCrc.size(), kNoCrc);
  return crc_text(updated_crc(std::as_bytes(std::span(header))));
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

/// Checks that yoke wrote the file and that it is intact. Returns the step.
int64_t verify(const SafetensorsReader& reader, const std::string& what) {
  const auto file = reader.file();
  const auto& metadata = reader.metadata();
  const auto format = metadata.find(std::string(kFormatKey));
  if (format == metadata.end() || format->second != kFormat) {
    throw Error(ErrorCode::kDataLoss, "{}: a safetensors file, but not a checkpoint of yoke", what);
  }
  const auto header_size = static_cast<size_t>(reader.header_bytes());
  const std::string text(reinterpret_cast<const char*>(file.data()), header_size);
  const size_t field = find_value(text, kHeaderCrcKey);
  if (field == text.npos) throw Error(ErrorCode::kDataLoss, "{}: the header has no {}", what, kHeaderCrcKey);
  if (std::string_view(text).substr(field, kNoCrc.size()) != header_crc(text, field)) {
    throw Error(ErrorCode::kDataLoss, "{}: the header does not match its checksum", what);
  }
  const int64_t version = number_of(metadata, kVersionKey, what);
  if (version != kVersion) {
    throw Error(ErrorCode::kFailedPrecondition, "{}: format version {}; this program reads {}: use a newer yoke", what,
                version, kVersion);
  }
  if (field_of(metadata, kDataCrcKey, what) != crc_text(updated_crc(file.subspan(header_size)))) {
    throw Error(ErrorCode::kDataLoss, "{}: the data does not match its checksum", what);
  }
  return number_of(metadata, kStepKey, what);
}

/// Locks a temporary file. The lock shows other writers that this writer is alive, and lasts as long as the result.
UniqueFd mark_in_use(int temporary) {
  UniqueFd mark(fcntl(temporary, F_DUPFD_CLOEXEC, 0));
  if (mark) flock(mark.value(), LOCK_EX | LOCK_NB);
  return mark;
}

}  // namespace

void write_whole_file(const fs::path& path, int64_t step, const TensorMap& tensors, const StringMap& given,
                      const OnWritten& on_written) {
  auto metadata = given;
  metadata.insert({{std::string(kFormatKey), std::string(kFormat)},
                   {std::string(kVersionKey), std::to_string(kVersion)},
                   {std::string(kStepKey), std::to_string(step)},
                   {std::string(kDataCrcKey), std::string(kNoCrc)},
                   {std::string(kHeaderCrcKey), std::string(kNoCrc)}});
  auto layout = lay_out_safetensors(tensors, metadata);
  UniqueFd mark;  // held until after the rename; replace_file closes its descriptor earlier
  try {
    replace_file(path, [&](int fd) {
      mark = mark_in_use(fd);
      const auto what = path.string();
      write_all(fd, layout.header, what);
      uint32_t crc = 0;
      int64_t written_bytes = std::ssize(layout.header);
      stream_tensors(layout, tensors, [&](auto bytes) {
        crc = updated_crc(bytes, crc);
        write_all(fd, bytes, what);
        written_bytes += std::ssize(bytes);
        if (on_written) on_written(written_bytes, layout.num_bytes);
      });
      auto& header = layout.header;
      header.replace(find_value(header, kDataCrcKey), kNoCrc.size(), crc_text(crc));
      const size_t field = find_value(header, kHeaderCrcKey);
      header.replace(field, kNoCrc.size(), header_crc(header, field));
      if (lseek(fd, 0, SEEK_SET) != 0) throw system_error(errno, "writing " + what);
      write_all(fd, header, what);
    });
  } catch (const Error& error) {
    const auto folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    struct statvfs disk {};
    if (error.code() != ErrorCode::kUnavailable || statvfs(folder.c_str(), &disk) != 0) throw;
    throw Error(error.code(), "{}; it needs {}, and {} is free there", error.what(), format_bytes(layout.num_bytes),
                format_bytes(static_cast<int64_t>(disk.f_bavail * disk.f_frsize)));
  }
}

StoredCheckpoint read_whole_file(const fs::path& path) {
  const auto what = path.string();
  const auto reader = std::make_shared<const SafetensorsReader>(path);
  StoredCheckpoint file{.path = path, .step = verify(*reader, what), .metadata = reader->metadata()};
  for (const auto& name : reader->names()) {
    const auto& slot = reader->slot(name);
    file.source.tensors.emplace(name, TensorSource::Whole{slot.dtype, slot.shape});
  }
  file.source.read = [reader](const std::string& name, int64_t first, int64_t length) {
    return reader->elements(name, first, length);
  };
  file.source.what = "the checkpoint " + what;
  return file;
}

StringMap whole_file_metadata(const fs::path& path) {
  return parse_safetensors_header(MappedFile(path).bytes(), path.string()).metadata;
}

}  // namespace yoke::train
