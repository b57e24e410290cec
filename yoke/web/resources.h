// yoke/web/resources.h -- what the server has, by path. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/web/page.h"

namespace yoke::web {

struct Resource {
  std::string_view path, type;
  std::string (*make)(const Machine&, const History&);
};
extern const std::array<Resource, 7> kResources;

/// The position in kResources; nullopt if there is no such path.
std::optional<size_t> find_resource(std::string_view path);

}  // namespace yoke::web
