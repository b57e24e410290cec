#include "yoke/container/client.h"

#include <algorithm>
#include <iterator>

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
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace yoke::container
