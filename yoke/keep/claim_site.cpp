#include "yoke/keep/claim_site.h"

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/claim/history.h"

namespace yoke::keep {

ClaimSite open_claim_site(const Environment& environment, claim::FolderCheck check, site::LeftOut* left_out) {
  auto config = claim::read_config(environment, left_out);
  // Calls `find` with the folder that the configuration names in `key`, or if that fails for somebody who only looks,
  // without it.
  const auto find_folder = [&](std::optional<std::filesystem::path>& key, const auto& find) {
    try {
      return find();
    } catch (const Error& error) {
      if (left_out == nullptr || !key) throw;
      if (left_out->problem.empty()) left_out->problem = error.what();
    }
    key.reset();
    return find();
  };
  auto folder = find_folder(config.lock_directory, [&] { return find_lock_folder(config, environment, check); });
  auto records = find_folder(config.history_directory, [&] { return find_history_folder(config, environment); });
  ClaimSite site{std::move(config), claim::Ledger(std::move(folder), std::move(records))};
  if (left_out != nullptr && !left_out->problem.empty()) {
    site.mistake =
        printable(left_out->problem) + "; that is left out here, and new claims are refused until it is mended";
  }
  return site;
}

}  // namespace yoke::keep
