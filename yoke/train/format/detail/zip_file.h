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
  int64_t begin_byte = 0;  ///< Position of its content in the file.
  int64_t num_bytes = 0;   ///< Size in the file, which is smaller than the content if the entry is compressed.
  uint32_t crc = 0;
  bool is_compressed = false;
};

/// Returns the entries of an archive by name, after checking that each is inside the file and no two overlap.
/// Errors  kDataLoss, beginning with `what`: it is not a zip file, it is truncated, a name appears twice, or an entry
///         is encrypted or outside of the file.
/// Source  PKWARE APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.
std::map<std::string, ZipEntry> parse_zip(std::span<const std::byte> file, const std::string& what);

/// Returns the content of an entry after checking its CRC-32. Errors: kDataLoss, naming file and entry, if the CRC-32
/// differs or the entry is compressed (torch.save never compresses).
std::span<const std::byte> zip_content(std::span<const std::byte> file, const ZipEntry& entry, const std::string& name,
                                       const std::string& what);

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
