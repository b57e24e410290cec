// yoke/train/format/detail/zip_file.h -- the part of the zip format that Python's torch.save uses: stored entries, no
// compression, zip64 where it is needed.
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
  int64_t begin_byte = 0;  ///< Of its content in the file.
  int64_t num_bytes = 0;   ///< There; when it is compressed, fewer than its content has.
  uint32_t crc = 0;
  bool is_compressed = false;
};

/// The entries of an archive by name. Each lies in the file and none overlaps another; the contents are not looked at.
/// Errors  kDataLoss, beginning with `what`: no zip file, truncated, a name twice, an entry that is
///         encrypted or outside of the file.
/// Source  PKWARE APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.
std::map<std::string, ZipEntry> parse_zip(std::span<const std::byte> file, const std::string& what);

/// The content, once its CRC-32 has been checked. Errors: kDataLoss, with both names, for this and for a compressed
/// one, which torch.save never makes.
std::span<const std::byte> zip_content(std::span<const std::byte> file, const ZipEntry& entry, const std::string& name,
                                       const std::string& what);

uint32_t zip_crc(std::span<const std::byte> bytes);

/// Makes an archive front to back: the caller writes each result of `begin`, the content, and at last that of `end`.
/// Every size is written as zip64, so that large archives are made no differently from small ones.
class ZipWriter {
 public:
  /// What comes before a content, which then lies at a multiple of 64 bytes, as torch.save lays it.
  std::string begin(std::string_view name, int64_t num_bytes, uint32_t crc);

  /// The directory, which ends the file.
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
