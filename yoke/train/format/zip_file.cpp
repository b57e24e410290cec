#include "yoke/train/format/detail/zip_file.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and nothing here swaps bytes");

constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kEnd64Locator = 0x07064b50;
constexpr int64_t kLocalHeaderBytes = 30, kCentralHeaderBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                  kEnd64LocatorBytes = 20, kMaxCommentBytes = 0xFFFF;
constexpr uint16_t kEncrypted = 1, kUtf8 = 1 << 11, kStored = 0, kDeflated = 8, kZip64Extra = 1, kZip64Version = 45;
constexpr uint32_t kIn64 = 0xFFFFFFFF;
constexpr int64_t kAlignment = 64;
constexpr int64_t kMaxZipRatio = 1032;  // 258 bytes from 2 bits

/// Reads numbers from a file, with bounds checks.
class Bytes {
 public:
  Bytes(std::span<const std::byte> file, const std::string& what) : file_(file), what_(what) {}

  template <typename T>
  T at(int64_t position) const {
    T value;
    std::memcpy(&value, range(position, sizeof value).data(), sizeof value);
    return value;
  }

  std::span<const std::byte> range(int64_t position, int64_t size) const {
    const auto whole = static_cast<int64_t>(file_.size());
    if (position < 0 || size < 0 || position > whole || size > whole - position) fail("it is truncated");
    return file_.subspan(static_cast<size_t>(position), static_cast<size_t>(size));
  }

  /// A 64-bit number that must fit in int64.
  int64_t length_at(int64_t position) const {
    const auto value = at<uint64_t>(position);
    if (value > static_cast<uint64_t>(INT64_MAX)) fail("it holds a length of {} bytes", value);
    return static_cast<int64_t>(value);
  }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::kDataLoss, "{}: {}", what_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::span<const std::byte> file_;
  const std::string& what_;
};

struct Directory {
  int64_t begin_byte, num_bytes, num_entries;
};

/// Returns the position of the record that ends the archive; nullopt if there is none. The bytes of its signature may
/// also occur by chance in the archive's comment, so the record whose comment ends the file is preferred. Otherwise
/// other bytes follow the archive, and the last record counts.
std::optional<int64_t> find_end(std::span<const std::byte> file, const Bytes& bytes) {
  const auto size = static_cast<int64_t>(file.size());
  std::optional<int64_t> last;
  for (int64_t end = size - kEndBytes; end >= std::max<int64_t>(0, size - kEndBytes - kMaxCommentBytes); --end) {
    if (bytes.at<uint32_t>(end) != kEnd) continue;
    const int64_t num_bytes_after = size - end - kEndBytes - bytes.at<uint16_t>(end + 20);
    if (num_bytes_after == 0) return end;
    if (num_bytes_after > 0 && !last) last = end;
  }
  return last;
}

Directory find_directory(std::span<const std::byte> file, const Bytes& bytes) {
  const auto found = find_end(file, bytes);
  if (!found) bytes.fail("not a zip file, or truncated: it has no directory at its end");
  const int64_t end = *found;
  if (bytes.at<uint16_t>(end + 4) != 0 && bytes.at<uint16_t>(end + 4) != 0xFFFF) bytes.fail("a part of a zip file");
  const int64_t locator = end - kEnd64LocatorBytes;
  if (locator < 0 || bytes.at<uint32_t>(locator) != kEnd64Locator) {
    return {bytes.at<uint32_t>(end + 16), bytes.at<uint32_t>(end + 12), bytes.at<uint16_t>(end + 10)};
  }
  const int64_t end64 = bytes.length_at(locator + 8);
  if (bytes.range(end64, kEnd64Bytes).empty() || bytes.at<uint32_t>(end64) != kEnd64) {
    bytes.fail("its zip64 directory is not where it should be");
  }
  return {bytes.length_at(end64 + 48), bytes.length_at(end64 + 40), bytes.length_at(end64 + 32)};
}

/// If a size is kIn64, the number is in the zip64 field. Replaces each such size by its number. The field contains only
/// these numbers, in the order of `sizes`.
void read_zip64(const Bytes& bytes, int64_t extra, int64_t extra_bytes, std::initializer_list<int64_t*> sizes) {
  if (std::ranges::none_of(sizes, [](const int64_t* size) { return *size == kIn64; })) return;
  const int64_t end = extra + extra_bytes;
  for (int64_t field_bytes = 0; end - extra >= 4; extra += field_bytes) {
    field_bytes = 4 + bytes.at<uint16_t>(extra + 2);
    if (field_bytes > end - extra) break;
    if (bytes.at<uint16_t>(extra) != kZip64Extra) continue;
    int64_t position = extra + 4;
    for (int64_t* size : sizes) {
      if (*size != kIn64) continue;
      if (position + 8 > extra + field_bytes) bytes.fail("a zip64 field is too short");
      *size = bytes.length_at(position);
      position += 8;
    }
    return;
  }
}

void check_crc(std::span<const std::byte> content, const ZipEntry& entry, const std::string& name,
               const std::string& what) {
  if (zip_crc(content) == entry.crc) return;
  throw Error(ErrorCode::kDataLoss,
              "{}: the entry '{}' does not match its CRC-32: it was changed, or saved after "
              "torch.serialization.set_crc32_options(False)",
              what, name);
}

/// Returns whether `packed` is the deflated form of exactly as many bytes as `to` has.
bool inflate_all(std::span<const std::byte> packed, std::span<std::byte> to) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;  // negative: without a header of zlib
  constexpr size_t kMost = 1 << 30;                             // zlib counts with 32 bits
  std::byte nothing{};
  if (to.empty()) to = {&nothing, 0};  // zlib does not take a null pointer
  int result = Z_OK;
  while (result == Z_OK) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    stream.avail_in = static_cast<uInt>(std::min(packed.size(), kMost));
    stream.next_out = reinterpret_cast<Bytef*>(to.data());
    stream.avail_out = static_cast<uInt>(std::min(to.size(), kMost));
    const size_t given = stream.avail_in, room = stream.avail_out;
    result = inflate(&stream, Z_NO_FLUSH);
    packed = packed.subspan(given - stream.avail_in);
    to = to.subspan(room - stream.avail_out);
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END && packed.empty() && to.empty();
}

void append(std::string& text, auto value) { text.append(reinterpret_cast<const char*>(&value), sizeof value); }

}  // namespace

std::map<std::string, ZipEntry> parse_zip(std::span<const std::byte> file, const std::string& what) {
  const Bytes bytes(file, what);
  const auto directory = find_directory(file, bytes);
  bytes.range(directory.begin_byte, directory.num_bytes);
  if (directory.num_entries > directory.num_bytes / kCentralHeaderBytes) {
    bytes.fail("its directory of {} bytes cannot hold {} entries", directory.num_bytes, directory.num_entries);
  }
  std::map<std::string, ZipEntry> entries;
  std::vector<std::pair<int64_t, int64_t>> ranges = {
      {directory.begin_byte, INT64_MAX}};  // each from its header to the end of its content
  const int64_t end = directory.begin_byte + directory.num_bytes;
  int64_t position = directory.begin_byte;
  for (int64_t i = 0; i < directory.num_entries; ++i) {
    if (end - position < kCentralHeaderBytes || bytes.at<uint32_t>(position) != kCentralHeader) {
      bytes.fail("entry {} of its directory is broken", i);
    }
    const int64_t name_bytes = bytes.at<uint16_t>(position + 28), extra_bytes = bytes.at<uint16_t>(position + 30),
                  comment_bytes = bytes.at<uint16_t>(position + 32);
    const int64_t extra = position + kCentralHeaderBytes + name_bytes;
    if (name_bytes + extra_bytes + comment_bytes > end - position - kCentralHeaderBytes) {
      bytes.fail("entry {} of its directory is broken", i);
    }
    const auto name_range = bytes.range(position + kCentralHeaderBytes, name_bytes);
    const std::string name(reinterpret_cast<const char*>(name_range.data()), name_range.size());

    int64_t stored_bytes = bytes.at<uint32_t>(position + 20), num_bytes = bytes.at<uint32_t>(position + 24),
            header = bytes.at<uint32_t>(position + 42);
    read_zip64(bytes, extra, extra_bytes, {&num_bytes, &stored_bytes, &header});
    if ((bytes.at<uint16_t>(position + 8) & kEncrypted) != 0) bytes.fail("the entry '{}' is encrypted", name);
    const auto method = bytes.at<uint16_t>(position + 10);
    if (method == kStored && stored_bytes != num_bytes) bytes.fail("the entry '{}' has two sizes", name);
    if (num_bytes / kMaxZipRatio > stored_bytes) {
      bytes.fail("the entry '{}' says that its {} bytes become {}, more than is possible", name, stored_bytes,
                 num_bytes);
    }
    const auto local_header = bytes.range(header, kLocalHeaderBytes);
    if (bytes.at<uint32_t>(header) != kLocalHeader || local_header.empty()) {
      bytes.fail("the entry '{}' is not where the directory says", name);
    }
    const int64_t local_name_bytes = bytes.at<uint16_t>(header + 26);
    const auto local_name = bytes.range(header + kLocalHeaderBytes, local_name_bytes);
    if (!std::ranges::equal(local_name, name_range)) bytes.fail("the entry '{}' has another name at its place", name);
    const int64_t begin = header + kLocalHeaderBytes + local_name_bytes + bytes.at<uint16_t>(header + 28);
    bytes.range(begin, stored_bytes);
    const ZipEntry entry{begin, stored_bytes, bytes.at<uint32_t>(position + 16), method, num_bytes};
    if (!entries.emplace(name, entry).second) bytes.fail("the entry '{}' is there twice", name);
    ranges.emplace_back(header, begin + stored_bytes);
    position = extra + extra_bytes + comment_bytes;
  }
  std::ranges::sort(ranges);
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) bytes.fail("entries of its directory overlap");
  }
  return entries;
}

uint32_t zip_crc(std::span<const std::byte> bytes) {
  // For an empty span, data() is null, and zlib's crc32 would return its start value.
  return bytes.empty()
             ? 0
             : static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

std::span<const std::byte> zip_content(std::span<const std::byte> file, const ZipEntry& entry, const std::string& name,
                                       const std::string& what) {
  const auto content = file.subspan(static_cast<size_t>(entry.begin_byte), static_cast<size_t>(entry.num_bytes));
  if (!entry.is_stored()) throw Error(ErrorCode::kDataLoss, "{}: the entry '{}' is compressed", what, name);
  check_crc(content, entry, name, what);
  return content;
}

void read_zip_content(std::span<const std::byte> file, const ZipEntry& entry, const std::string& name,
                      const std::string& what, std::span<std::byte> to) {
  if (entry.is_stored()) {
    std::ranges::copy(zip_content(file, entry, name, what), to.begin());
    return;
  }
  const auto packed = file.subspan(static_cast<size_t>(entry.begin_byte), static_cast<size_t>(entry.num_bytes));
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::kDataLoss, "{}: the entry '{}' is compressed, and {}", what, name, why);
  };
  if (entry.method != kDeflated) refuse("not by deflate, the only method that can be read");
  if (!inflate_all(packed, to)) refuse("its data are damaged");
  check_crc(to, entry, name, what);
}

std::string ZipWriter::begin(std::string_view name, int64_t num_bytes, uint32_t crc) {
  constexpr uint16_t kPadding = 0x4246;  // "FB": the padding field of torch.save
  constexpr int64_t kFieldBytes = 4, kSizesBytes = 16;
  const int64_t unpadded =
      position_ + kLocalHeaderBytes + static_cast<int64_t>(name.size()) + kFieldBytes + kSizesBytes + kFieldBytes;
  const auto padding = static_cast<uint16_t>((kAlignment - unpadded % kAlignment) % kAlignment);

  std::string text;
  append(text, kLocalHeader);
  append(text, kZip64Version);
  append(text, kUtf8);
  append(text, kStored);
  append(text, uint32_t{0x00210000});  // always 1 January 1980, so that the same tensors give the same bytes
  append(text, crc);
  append(text, kIn64);
  append(text, kIn64);
  append(text, static_cast<uint16_t>(name.size()));
  append(text, static_cast<uint16_t>(kFieldBytes + kSizesBytes + kFieldBytes + padding));
  text += name;
  append(text, kZip64Extra);
  append(text, static_cast<uint16_t>(kSizesBytes));
  append(text, num_bytes);
  append(text, num_bytes);
  append(text, kPadding);
  append(text, padding);
  text.append(padding, 'Z');
  entries_.push_back({std::string(name), position_, num_bytes, crc});
  position_ += static_cast<int64_t>(text.size()) + num_bytes;
  return text;
}

std::string ZipWriter::end() {
  std::string text;
  for (const auto& entry : entries_) {
    append(text, kCentralHeader);
    append(text, kZip64Version);
    append(text, kZip64Version);
    append(text, kUtf8);
    append(text, kStored);
    append(text, uint32_t{0x00210000});
    append(text, entry.crc);
    append(text, kIn64);
    append(text, kIn64);
    append(text, static_cast<uint16_t>(entry.name.size()));
    append(text, uint16_t{28});  // length of the zip64 field
    append(text, uint16_t{0});   // no comment
    append(text, uint16_t{0});   // first disk
    append(text, uint16_t{0});   // attributes
    append(text, uint32_t{0});
    append(text, kIn64);
    text += entry.name;
    append(text, kZip64Extra);
    append(text, uint16_t{24});
    append(text, entry.num_bytes);
    append(text, entry.num_bytes);
    append(text, entry.header_byte);
  }
  const int64_t directory_bytes = static_cast<int64_t>(text.size()), end64 = position_ + directory_bytes;
  const auto num_entries = static_cast<int64_t>(entries_.size());
  append(text, kEnd64);
  append(text, kEnd64Bytes - 12);  // bytes of this record after this field
  append(text, kZip64Version);
  append(text, kZip64Version);
  append(text, uint32_t{0});
  append(text, uint32_t{0});
  append(text, num_entries);
  append(text, num_entries);
  append(text, directory_bytes);
  append(text, position_);
  append(text, kEnd64Locator);
  append(text, uint32_t{0});
  append(text, end64);
  append(text, uint32_t{1});
  append(text, kEnd);
  for (int i = 0; i < 4; ++i) append(text, uint16_t{0xFFFF});
  append(text, kIn64);
  append(text, kIn64);
  append(text, uint16_t{0});
  return text;
}

}  // namespace yoke::train
