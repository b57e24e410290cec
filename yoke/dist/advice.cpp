#include "yoke/dist/detail/advice.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

namespace yoke::dist {
namespace {

/// The parts of "all_reduce of 8 Float with SUM".
struct Parts {
  std::string_view name, size, rest;
  std::string_view type() const { return rest.substr(0, rest.find(' ')); }
};

Parts parts_of(std::string_view kind) {
  constexpr std::string_view kOf = " of ";
  const auto of = kind.find(kOf);
  const auto begin = of == kind.npos ? kind.size() : of + kOf.size();
  if (begin >= kind.size() || std::isdigit(static_cast<unsigned char>(kind[begin])) == 0) return {kind, "", ""};
  const auto space = kind.find(' ', begin);
  const auto size = kind.substr(begin, space == kind.npos ? kind.npos : space - begin);
  return {kind.substr(0, of), size, space == kind.npos ? std::string_view() : kind.substr(space + 1)};
}

/// Whether the rank has done with its batches there, or asks whether it has.
bool is_after_batches(std::string_view kind) { return kind == "should_stop" || kind.starts_with("the end of "); }

}  // namespace

std::string advice_for(const std::vector<std::string>& kinds) {
  std::set<std::string_view> names, sizes, types, rests;
  for (const auto& kind : kinds) {
    const auto parts = parts_of(kind);
    names.insert(parts.name);
    sizes.insert(parts.size);
    types.insert(parts.type());
    rests.insert(parts.rest);
  }
  if (names.size() == 1 && !sizes.contains("") && (types.size() > 1 || rests.size() <= 1)) {
    if (sizes.size() > 1 && types.size() > 1) return "the sizes and the types must be the same on all ranks";
    if (sizes.size() > 1) return "the sizes must be the same on all ranks";
    if (types.size() > 1) return "the types must be the same on all ranks";
  }
  std::string advice = "all of them must call the same ones, in the same order, and not only rank 0";
  const auto is_step = [](std::string_view kind) { return kind.starts_with("a step of "); };
  if (std::ranges::any_of(kinds, is_step) && std::ranges::any_of(kinds, is_after_batches)) {
    advice += "; perhaps some had fewer batches than the others, or left their loop early";
  }
  return advice;
}

}  // namespace yoke::dist
