// yoke/launch/store/store_requests_test.h -- the requests of a client of TCPStore, and short replies, for tests.
#pragma once

#include <cstdint>
#include <string>

namespace yoke::launch {

template <typename T>
std::string number(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
inline std::string text(const std::string& value) { return number<uint64_t>(value.size()) + value; }
inline std::string query(char code) { return std::string(1, code); }

inline const std::string kHello = query(0) + number<uint32_t>(0x3C85F7CE);
inline const std::string kStop(1, '\0'), kReady(1, '\0'), kNotReady(1, '\1'), kCanceled(1, '\1');

inline std::string set(const std::string& key, const std::string& value) { return query(1) + text(key) + text(value); }
inline std::string get(const std::string& key) { return query(3) + text(key); }
inline std::string add(const std::string& key, int64_t by) { return query(4) + text(key) + number(by); }
inline std::string check(const std::string& key) { return query(5) + number<uint64_t>(1) + text(key); }
inline std::string wait(const std::string& a, const std::string& b) {
  return query(6) + number<uint64_t>(2) + text(a) + text(b);
}
inline std::string ping(uint32_t pid) { return query(13) + number(pid); }

}  // namespace yoke::launch
