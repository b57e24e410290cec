#include <algorithm>
#include <cstdlib>
#include <utility>

#include "yoke/device/visibility/detail/rules.h"

namespace yoke::device {
namespace {

/// Parses a decimal number, or a hexadecimal one after 0x. Allows leading spaces, as in the specification's examples.
std::optional<int64_t> number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const std::string digits(text.substr(is_hex ? 2 : 0));
  if (digits.empty() || digits.size() > 9) return std::nullopt;
  if (digits.find_first_not_of(is_hex ? "0123456789abcdefABCDEF" : "0123456789") != digits.npos) return std::nullopt;
  return std::strtoll(digits.c_str(), nullptr, is_hex ? 16 : 10);
}

struct Mask {
  std::optional<int64_t> device;
  std::optional<int64_t> tile;
  bool has_tile = false;
};

Mask read_mask(const std::string& token) {
  const auto point = token.find('.');
  Mask mask{number(std::string_view(token).substr(0, point)), std::nullopt, point != token.npos};
  if (mask.has_tile) mask.tile = number(std::string_view(token).substr(point + 1));
  return mask;
}

/// Returns the unit that has number `device` if every tile counts as a device.
std::optional<Unit> flat_unit(int64_t device, const std::vector<int64_t>& tiles) {
  for (size_t card = 0; card < tiles.size(); ++card) {
    if (device < tiles[card]) {
      if (tiles[card] == 1) return Unit{static_cast<int64_t>(card), {}};
      return Unit{static_cast<int64_t>(card), device};
    }
    device -= tiles[card];
  }
  return std::nullopt;
}

Entry match(const std::string& token, const std::vector<int64_t>& tiles, bool is_composite) {
  Entry entry{token, Verdict::kVisible, std::nullopt, "", true};
  const auto refuse = [&entry](Verdict verdict, std::string why) {
    entry.verdict = verdict;
    entry.why = std::move(why);
    return entry;
  };
  const auto mask = read_mask(token);
  if (!mask.device || (mask.has_tile && !mask.tile)) {
    entry.is_certain = false;  // the driver's conversion throws, and what follows depends on the program
    return refuse(Verdict::kInvalid, "neither a number nor CARD.TILE");
  }
  if (mask.has_tile && !is_composite) {
    return refuse(Verdict::kIgnored, "CARD.TILE counts only with ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE");
  }
  if (tiles.empty()) return refuse(Verdict::kUnknown, "Intel GPUs are not listed here, so this is not checked");
  if (!is_composite) {
    entry.unit = flat_unit(*mask.device, tiles);
    if (!entry.unit) return refuse(Verdict::kOutOfRange, "no such device; skipped");
    entry.why = "number of a tile, as each counts as a device";
    return entry;
  }
  if (*mask.device >= static_cast<int64_t>(tiles.size())) return refuse(Verdict::kOutOfRange, "no such card; skipped");
  if (mask.has_tile && *mask.tile >= tiles[static_cast<size_t>(*mask.device)]) {
    return refuse(Verdict::kOutOfRange, "the card has no such tile; skipped");
  }
  entry.unit = Unit{*mask.device, mask.tile};
  entry.why = mask.has_tile ? "a tile of a card" : "a card with its tiles";
  return entry;
}

/// Sorts the units by card, removes duplicates, and replaces all tiles of a card by the card.
std::vector<Unit> in_card_order(const std::vector<Unit>& chosen, const std::vector<int64_t>& tiles, bool is_composite) {
  std::vector<Unit> units;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto card = static_cast<int64_t>(i);
    const auto is_chosen = [&](const Unit& unit) { return std::ranges::find(chosen, unit) != chosen.end(); };
    std::vector<Unit> of_card;
    for (int64_t tile = 0; tile < tiles[i]; ++tile) {
      if (is_chosen({card, tile})) of_card.push_back({card, tile});
    }
    const bool is_whole = static_cast<int64_t>(of_card.size()) == tiles[i];
    if (is_chosen({card, {}}) || (is_composite && is_whole)) of_card = {{card, {}}};
    units.insert(units.end(), of_card.begin(), of_card.end());
  }
  return units;
}

}  // namespace

Selection select_level_zero(const std::optional<std::string>& text, const std::vector<int64_t>& tiles,
                            std::string_view hierarchy) {
  const bool is_composite = hierarchy == "COMPOSITE";
  Selection result;
  std::vector<Unit> chosen;
  if (!text || text->empty()) {
    for (size_t i = 0; i < tiles.size(); ++i) {
      const auto card = static_cast<int64_t>(i);
      if (is_composite || tiles[i] == 1) chosen.push_back({card, {}});
      for (int64_t tile = 0; !is_composite && tiles[i] > 1 && tile < tiles[i]; ++tile) chosen.push_back({card, tile});
    }
    result.effect = text ? "empty: hides nothing" : "not set: every GPU";
  } else {
    for (const auto& token : split_list(*text, true)) {
      auto entry = match(token, tiles, is_composite);
      if (entry.unit && std::ranges::find(chosen, *entry.unit) != chosen.end()) {
        entry.verdict = Verdict::kDuplicate;
        entry.why = "named before; no harm";
      } else if (entry.unit) {
        chosen.push_back(*entry.unit);
      }
      result.entries.push_back(std::move(entry));
    }
    result.effect = is_composite ? "the cards (and tiles of them) that Level Zero shows, in their own order"
                                 : "the tiles that Level Zero shows as devices, in their own order";
  }
  result.units = in_card_order(chosen, tiles, is_composite);
  return result;
}

}  // namespace yoke::device
