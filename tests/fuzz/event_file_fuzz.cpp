// Reads any bytes as an event file: no error is thrown, and the values do not depend on the sizes of the pieces that
// are passed to the parser.
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>

#include "yoke/base/crc32c.h"
#include "yoke/curve/log.h"

namespace {

std::string values_of(std::string_view bytes, size_t size) {
  yoke::curve::Log log;
  yoke::curve::EventParser parser(log);
  std::string rest;
  for (bool is_end = false; !is_end;) {
    is_end = bytes.empty();
    rest += bytes.substr(0, size);
    bytes.remove_prefix(std::min(size, bytes.size()));
    const auto length = parser.take(rest, is_end);
    if (length > rest.size()) std::abort();
    rest.erase(0, length);
  }
  log.finish();
  std::string text;
  for (const auto& curve : log.curves()) {
    text += curve.metric + '\0';
    for (const double value : curve.values) text.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return text;
}

void append(std::string& to, uint64_t number, size_t size) { to.append(reinterpret_cast<const char*>(&number), size); }
uint32_t masked(std::string_view bytes) { return std::rotr(yoke::crc32c(bytes), 15) + 0xa282ead8; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (values_of(bytes, bytes.size() + 1) != values_of(bytes, 5)) std::abort();
  // Checksums reject nearly every input, so the input is also wrapped into a valid record.
  std::string record;
  append(record, size, 8);
  append(record, masked(record), 4);
  record += bytes;
  append(record, masked(bytes), 4);
  (void)values_of(record, record.size());
  return 0;
}
