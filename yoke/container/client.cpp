#include "yoke/container/client.h"

#include <algorithm>
#include <iterator>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/utf8.h"

namespace yoke::container {

Environment Client::environment(Environment environment) const {
  for (const auto& [name, value] : variables) environment.set(name, value);
  return environment;
}

std::vector<std::string> Client::words(const Environment& environment) const {
  std::vector<std::string> words = {"env"};
  for (const auto& [name, value] : variables) {
    if (environment.find(name) != value) words.push_back(name + "=" + value);
  }
  if (words.size() == 1) words.clear();
  words.insert(words.end(), argv.begin(), argv.end());
  return words;
}

std::string Client::to_bytes() const {
  std::string bytes = std::to_string(argv.size()) + '\0';
  for (const auto& word : argv) bytes += word + '\0';
  for (const auto& [name, value] : variables) bytes += name + '\0' + value + '\0';
  return bytes;
}

Client Client::from_bytes(const std::string& bytes) {
  const auto words = split_terminated(bytes, '\0');
  const auto num_words = words.empty() ? std::nullopt : parse_int(words[0]);
  if (!num_words || *num_words < 0 || static_cast<size_t>(*num_words) >= words.size()) {
    throw Error(ErrorCode::kInternal, "the command line of an engine did not arrive");
  }
  size_t i = 1;
  Client client;
  for (; i <= static_cast<size_t>(*num_words); ++i) client.argv.emplace_back(words[i]);
  for (; i + 1 < words.size(); i += 2) client.variables.emplace_back(words[i], words[i + 1]);
  return client;
}

void check_variable(const std::string& where, const std::string& name, const std::string& value) {
  // Engines keep variables as JSON: what is not UTF-8 becomes U+FFFD.
  if (is_utf8(name) && is_utf8(value) && (name + value).find('\0') == std::string::npos) return;
  throw Error(ErrorCode::kInvalidArgument,
              "{}: engines of containers change values that are not UTF-8 text; pass {} on in a file, with -v",
              printable(where), printable(name));
}

bool is_read_by_clients(std::string_view name) {
  // Those of Go, of its packages for networks and certificates, and of the engines, as in podman 4.3 and docker 20.10.
  constexpr std::string_view kNames[] = {
      "PATH",        "HOME",       "USER",          "LOGNAME",       "TMPDIR",
      "SHELL",       "TERM",       "NO_COLOR",      "GODEBUG",       "GOMAXPROCS",
      "GOGC",        "GOMEMLIMIT", "GOTRACEBACK",   "BASH_ENV",      "HTTP_PROXY",
      "HTTPS_PROXY", "NO_PROXY",   "ALL_PROXY",     "http_proxy",    "https_proxy",
      "no_proxy",    "all_proxy",  "SSH_AUTH_SOCK", "NOTIFY_SOCKET", "DBUS_SESSION_BUS_ADDRESS"};
  constexpr std::string_view kPrefixes[] = {"LD_",          "XDG_",     "SSL_CERT_", "DOCKER_",  "CONTAINER",
                                            "PODMAN_",      "BUILDAH_", "BUILDKIT_", "STORAGE_", "REGISTRY_",
                                            "_CONTAINERS_", "_PODMAN_", "LISTEN_",   "GOLANG_"};
  return std::ranges::find(kNames, name) != std::end(kNames) ||
         std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace yoke::container
