// yoke/train/format/detail/zip_file.h -- reads zip files, and writes the part of the format that Python's torch.save
// uses: stored entries, no compression, zip64 where it is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::train {

struct ZipEntry {
  int64_t begin_byte = 0;     ///< Position of its content in the file.
  int64_t num_bytes = 0;      ///< Size in the file.
  uint32_t crc = 0;           ///< Of the content.
  uint16_t method = 0;        ///< 0: stored, 8: deflated; others cannot be read.
  int64_t content_bytes = 0;  ///< At most 1032 times num_bytes, because deflate cannot compress more.

  bool is_stored() const { return method == 0; }
};

/// Returns the entries of an archive by name, after checking that each is inside the file and no two overlap. Like
/// torch.load, accepts other bytes after the archive's end.
/// Errors  kDataLoss, beginning with `what`: it is not a zip file, it is truncated, a name appears twice, or an entry
///         is encrypted or outside of the file.
/// Source  PKWARE APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.
std::map<std::string, ZipEntry> parse_zip(std::span<const std::byte> file, const std::string& what);

/// Returns the content of a stored entry after checking its CRC-32.
/// Errors  kDataLoss, naming file and entry: the CRC-32 differs, or the entry is compressed.
std::span<const std::byte> zip_content(std::span<const std::byte> file, const ZipEntry& entry, const std::string& name,
                                       const std::string& what);

/// Copies the content of any entry to `to`, which has entry.content_bytes, and checks its CRC-32.
/// Errors  kDataLoss, naming file and entry: the CRC-32 differs, or the compressed data are damaged.
void read_zip_content(std::span<const std::byte> file, const ZipEntry& entry, const std::string& name,
                      const std::string& what, std::span<std::byte> to);

uint32_t zip_crc(std::span<const std::byte> bytes);

/// Makes an archive from front to back. For each entry, the caller writes the result of `begin`, then the content.
/// Finally the caller writes the result of `end`. Every size is written as zip64, so that small and large archives have
/// the same form.
class ZipWriter {
 public:
  /// Returns the bytes to write before the content of an entry. The bytes include padding, so that the content begins
  /// at a multiple of 64 bytes, as in torch.save's files.
  std::string begin(std::string_view name, int64_t num_bytes, uint32_t crc);

  /// Returns the directory, which ends the file.
  std::string end();

 private:
  struct Written {
    std::string name;
    int64_t header_byte, num_bytes;
    uint32_t crc;
  };
  std::vector<Written> entries_;
  int64_t position_ = 0;
};

}  // namespace yoke::train
