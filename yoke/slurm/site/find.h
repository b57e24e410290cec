// yoke/slurm/site/find.h -- finds the description of a site: in a file, among the user's and the installed ones, or by
// asking Slurm.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/slurm/site/detect.h"
#include "yoke/slurm/site/site.h"

namespace yoke::slurm {

struct FoundSite {
  Site site;
  std::string file;                ///< Empty: it was made from what Slurm says.
  std::string why;                 ///< How it was chosen: "--site", "ClusterName lumi".
  std::optional<Version> version;  ///< Of the Slurm here, else of the site.
};

/// The folders of sites; a user's own come first, and hide installed ones of the same name.
/// `share` is the folder share/yoke of the installation.
std::vector<std::filesystem::path> site_folders(const Environment& environment, const std::filesystem::path& share);

/// Reads all sites. A file that cannot be read is named in `problems`.
std::vector<FoundSite> list_sites(const std::vector<std::filesystem::path>& folders,
                                  std::vector<std::string>& problems);

/// Finds a site by name, or by the path of a file. Errors  kNotFound with the names that there are; those of
/// parse_site().
FoundSite find_site(const std::string& name, const std::vector<std::filesystem::path>& folders);

/// Asks Slurm for its configuration; nullopt if there is no Slurm here. Errors  those of ask().
std::optional<ClusterConfig> ask_config(const Environment& environment);

/// Asks Slurm for its nodes and partitions. Errors  those of ask() and detect_site().
Site ask_site(const ClusterConfig& config, const std::string& partition, const Environment& environment,
              std::vector<std::string>& notes);

/// Chooses the site: `name` if it is not empty; the one that matches this cluster or host; what Slurm says of itself.
/// Errors  kNotFound: no name, no match and no Slurm.
FoundSite choose_site_here(const std::string& name, const std::string& partition, const Environment& environment,
                           const std::vector<std::filesystem::path>& folders, std::vector<std::string>& notes);

}  // namespace yoke::slurm
