// yoke/keep/claim_site.h -- what a machine's administrator decided about claims, and where its locks are.
#pragma once

#include <string>

#include "yoke/base/environment.h"
#include "yoke/claim/config.h"
#include "yoke/claim/folder.h"
#include "yoke/claim/ledger.h"

namespace yoke::keep {

/// The site's configuration and its ledger.
struct ClaimSite {
  claim::SiteConfig config;
  claim::Ledger ledger;
  std::string mistake = {};  ///< Of a configuration that was read only to look: what was left out, in a sentence.
};

/// With `left_out`, a mistake in the configuration is left out, for those who only look.
/// Errors  those of claim::read_config() and claim::find_lock_folder().
ClaimSite open_claim_site(const Environment& environment, claim::FolderCheck check = claim::FolderCheck::kAll,
                          site::LeftOut* left_out = nullptr);

}  // namespace yoke::keep
